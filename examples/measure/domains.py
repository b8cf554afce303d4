"""Several studies side by side, from their published tables: accuracy, and what S2T silences.

Usage: python examples/measure/domains.py STUDY... [--picture FILE.svg]

A study is a folder of results/ with methods justrl and stapo; its first benchmark and decoding are shown.
"""

import argparse
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd

from stapo.suite.analysis import charts
from stapo.suite.analysis.evidence.recorded import QUADRANTS
from stapo.suite.analysis.formats import UNMEASURED, with_interval
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.repository import ROOT

COLUMNS = {
    "accuracy, base": "Base [%]",
    "accuracy, justrl": "JustRL [%]",
    "accuracy, stapo": "STAPO [%]",
    "share": "S2T's share of tokens with A > 0 [%]",
    "gradient": "their gradient, against likely and uncertain tokens [%]",
    "acts": "updates in which STAPO silences [%]",
}


def numbers(study: str) -> dict[str, Interval]:
    """Return the numbers of a study by the keys of `COLUMNS`: of JustRL, where no method is named."""
    tables = ROOT / "results" / study / "tables"
    read = {path.stem: pd.read_csv(path) for path in tables.glob("*.csv")}
    values = read["values"]
    values = values[(values.metric.str.match(r"avg@\d")) & values.seed.isna() & values.step.isna()]
    first = values[(values.decoding == values.decoding.iloc[0]) & (values.benchmark != "Avg")]
    first = first[first.benchmark == first.benchmark.iloc[0]].drop_duplicates("method")
    result = {
        f"accuracy, {row.method}": Interval(row.value, row.low, row.high)
        for row in first.itertuples()
    }
    quadrants = read["quadrants"]
    (row,) = quadrants[
        (quadrants.Method == "JustRL")
        & (quadrants.Advantage == "> 0")
        & (quadrants.Quadrant == QUADRANTS[0])
    ].to_dict("records")
    result["share"] = _interval(row, "Density [%]")
    result["gradient"] = _interval(row, "Against high/high [%]")
    dose = read["dose"]
    result["acts"] = _interval(dose[dose.Method == "STAPO"].iloc[0], "Updates in which it acts [%]")
    return result


def _interval(row: Any, column: str) -> Interval:
    return Interval(row[column], row[f"{column}, low"], row[f"{column}, high"])


def table(studies: dict[str, dict[str, Interval]]) -> str:
    """Return the numbers as a table in Markdown."""
    lines = [f"| Study | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for study, measured in studies.items():
        cells = [_cell(measured[key]) for key in COLUMNS]
        lines.append(f"| {study} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(estimate: Interval) -> str:
    return UNMEASURED if isnan(estimate.low) else with_interval(estimate, ".3g")


def picture(studies: dict[str, dict[str, Interval]]) -> Any:
    """Return a figure: accuracy by method, and S2T's share."""
    shown = {
        "accuracy at T = 1.0 [%]": {
            "Base": "accuracy, base",
            "JustRL": "accuracy, justrl",
            "STAPO": "accuracy, stapo",
        },
        "S2T's share of tokens with A > 0 [%]": {"JustRL": "share"},
    }
    panels = []
    for label, groups in shown.items():
        rows = [
            {"group": group, "y": study, **charts.interval(measured[key], axis="x")}
            for study, measured in studies.items()
            for group, key in groups.items()
        ]
        panels.append(
            charts.panel(charts.bars(rows, label, charts.colours(["JustRL", "STAPO", "Base"])))
        )
    return charts.grid(panels, "", columns=1)


def main() -> None:
    """Print the table and write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="+", metavar="STUDY")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    studies = {study: numbers(study) for study in given.studies}
    print(table(studies))
    if given.picture:
        picture(studies).save(str(given.picture))


if __name__ == "__main__":
    main()
