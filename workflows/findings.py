"""Write the tables of README.md and docs/findings.md that state results of the miniature.

    python workflows/findings.py    # no options; changes these files

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->` and is made from the files that the
pipeline wrote to `results/miniature*/tables`, and from the log of the regimes.
"""

import argparse
import csv
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

from stapo.files import replace_file
from stapo.provenance import SUMS, file_sha256
from stapo.publication.folder import read_published_study
from stapo.repository import ROOT
from stapo.study import Study

RESULTS = ROOT / "results"
PAGES = (ROOT / "README.md", ROOT / "docs" / "findings.md")
STUDY, LARGER, ABLATION = "miniature", "miniature-1m", "miniature-ablation"
BLOCK = re.compile(r"(<!-- begin ([a-z-]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)

Row = dict[str, str]


def rows(study: str, name: str) -> list[Row]:
    """Return the rows of a table of a study."""
    return _read(RESULTS / study / "tables" / f"{name}.csv")


def _read(path: Path) -> list[Row]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _interval(row: Row, digits: int) -> str:
    value, low, high = (float(row[key]) for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def accuracy() -> str:
    """Return Avg of each method under each decoding, and the entropy of its trainings, for each size."""
    head, body = ["Method"], {}
    for name in _there(STUDY, LARGER):
        (size,) = _study(name).run.sizes
        (_, *columns), lines = _accuracy(name)
        head += [f"{size}: {column}" for column in columns]
        for method, *cells in lines:
            body.setdefault(method, [method]).extend(cells)
    return markdown(head, body.values())


def ablation() -> str:
    """Return Avg of each training of the ablation, their entropy, and the difference from STAPO."""
    if not _there(ABLATION):
        return "Not run yet.\n"
    study = _study(ABLATION)
    (target, *_), _ = study.compared()
    head, body = _accuracy(ABLATION)
    trainings = _trainings(study)
    below = {
        row["reference"]: _interval(row, 1)
        for row in rows(ABLATION, "values")
        if row["benchmark"] == "Avg"
        and row["metric"] == "difference of avg@N"
        and (row["method"], row["decoding"]) == (target, study.run.decodings[0])
    }
    lines = []
    methods = ("base", *study.run.methods)
    for method, (title, *intervals, entropy) in zip(methods, body, strict=True):
        averages = (
            trainings.get((method, decoding), whole)
            for decoding, whole in zip(study.run.decodings, intervals, strict=True)
        )
        lines.append([title, *averages, entropy, below.get(method, "")])
    temperature = study.decodings[study.run.decodings[0]].temperature
    gap = f"{study.method(target).title} minus it, T = {temperature} [points]"
    return markdown([*head, gap], lines)


def _trainings(study: Study) -> dict[tuple[str, str], str]:
    """Return Avg of each training, by method and decoding, in the order of the seeds."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows(study.name, "values"):
        if row["step"] == str(study.training.steps) and row["seed"]:
            seeds = found.setdefault((row["method"], row["decoding"]), {})
            seeds.setdefault(row["seed"], []).append(float(row["value"]))
    return {
        key: ", ".join(f"{fmean(seeds[seed]):.1f}" for seed in sorted(seeds, key=int))
        for key, seeds in found.items()
    }


def _there(*names: str) -> list[str]:
    """Return the studies whose results are there."""
    return [name for name in names if (RESULTS / name).exists()]


def _study(name: str) -> Study:
    """Return a study in the form whose results are there."""
    return read_published_study(RESULTS / name)


def _accuracy(name: str) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the accuracies of a study of one size."""
    study = _study(name)
    found = {
        (row["size"], row["method"], row["decoding"]): _interval(row, 1)
        for row in rows(name, "values")
        if row["benchmark"] == "Avg"
        and not row["reference"]
        and not row["seed"]
        and not row["step"]
    }
    stability = {(row["Size"], row["Method"]): row for row in rows(name, "stability")}
    (size,) = study.run.sizes
    body = []
    for method in ("base", *study.run.methods):
        title = "Base" if method == "base" else study.method(method).title
        averages = (found[size, method, decoding] for decoding in study.run.decodings)
        body.append([title, *averages, _entropy(stability.get((size, title), {}))])
    temperatures = (study.decodings[name].temperature for name in study.run.decodings)
    return ["Method", *(f"T = {one} [%]" for one in temperatures), "entropy [ratio]"], body


def _entropy(row: Row) -> str:
    names = ("Lowest entropy [ratio]", "Highest entropy [ratio]")
    return ", ".join(f"{float(row[name]):.2f}" for name in names) if row else ""


def checksums() -> str:
    """Return the checksum of SHA256SUMS of each study, which `stapo verify` prints too."""
    names = _there(STUDY, LARGER, ABLATION)
    return "".join(
        f"- `results/{name}`: `{file_sha256(RESULTS / name / SUMS)}`\n" for name in names
    )


TABLES: dict[str, Callable[[], str]] = {
    "accuracy": accuracy,
    "ablation": ablation,
    "checksums": checksums,
}


def written(page: str) -> str:
    """Return a page with its tables made again."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", page)


def main() -> None:
    """Write the tables of the pages again."""
    lines = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=lines).parse_args()
    for page in PAGES:
        if (new := written(old := page.read_text())) != old:
            with replace_file(page) as stream:
                stream.write(new)


if __name__ == "__main__":
    main()
