"""The tables and numbers of findings and rivals are those of the results."""

import csv
import runpy
from collections.abc import Callable, Iterator
from functools import partial
from statistics import fmean

import pytest

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.updates import Updates
from stapo.suite.analysis.formats import with_interval
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.records.arms import SILENCED
from stapo.suite.repository import ROOT, STUDIES
from stapo.suite.study import read_study

FINDINGS, RIVALS = "docs/findings.md", "docs/rivals.md"
MARKED = "workflows/studies/marked/README.md"
DOMAINS = "workflows/studies/domains/README.md"
HALF = "training reward, last half"
REWARD = f"{HALF} (primary)"
ENTROPY = "entropy, last tenth [nats]"
FIRST, LAST = (f"final accuracy, {which} decoding [%]" for which in ("first", "last"))
Row = dict[str, str]


def rows_of(table: str, study: str = "marked") -> list[Row]:
    path = ROOT / "results" / study / "tables" / f"{table}.csv"
    with path.open(newline="") as stream:
        return [*csv.DictReader(stream)]


def interval(row: Row, heading: str, unit: float = 1.0) -> Interval:
    value, *ends = (unit * float(row[heading + end]) for end in ("", ", low", ", high"))
    return Interval(value, *sorted(ends))


def interval_of(row: Row, heading: str, form: str, unit: float = 1.0) -> str:
    return with_interval(interval(row, heading, unit), form)


def later() -> Iterator[list[str]]:
    artefacts = Artefacts(read_study(STUDIES / "marked" / "marked-later.yaml"), ROOT)
    for one in artefacts.study.intervened():
        rollouts = [[made] for made in artefacts.intervention(one).numbers.repetitions]
        change = partial(Updates("", SILENCED, rollouts).change, "entropy")
        gaps = [change(arm).times(1e4) for arm in ("random", "random_candidates")]
        method = artefacts.study.title(one.run.method)
        yield [one.model, method, *(with_interval(gap, "+.2f") for gap in gaps)]


def trainings() -> Iterator[list[str]]:
    shown = (REWARD, FIRST, LAST, "mean accuracy of the evaluation curve [%]", ENTROPY)
    found = [
        row for row in rows_of("endpoints") if row["Model"] == "all" and row["Endpoint"] in shown
    ]
    rows, ours = ([row for row in found if row["Method"] == name] for name in ("JustRL", "STAPO"))
    for row, stapo in zip(rows, ours, strict=True):
        means = [f"{float(one['Mean']):.3g}" for one in (row, stapo)]
        p_value = f"{float(row['STAPO minus it, p']):.3f}"
        yield [row["Endpoint"], *means, interval_of(row, "STAPO minus it", "+.3g"), p_value]


def marks() -> Iterator[list[str]]:
    for row in rows_of("marks"):
        if (row["Model"], row["Method"]) == ("all", "STAPO") and "A > 0" in row["Tokens"]:
            shares = ("Wrong [%]", "Of all wrong ones [%]")
            yield [row["Tokens"], *(interval_of(row, name, ".1f") for name in shares)]


def methods_of(study: str) -> Iterator[tuple[Row, Row, dict[str, Row]]]:
    """Yield dose, stability and endpoints of each method, over all base models."""
    found = [rows_of(table, study) for table in ("dose", "endpoints", "stability")]
    dose, endpoints, stability = ([row for row in rows if row["Model"] == "all"] for rows in found)
    for touched, stable in zip(dose, stability, strict=True):
        own = (row for row in endpoints if row["Method"] == stable["Method"])
        yield touched, stable, {row["Endpoint"]: row for row in own}


def beside_justrl(study: str) -> dict[str, list[str]]:
    """Return of each method: dose, reward minus JustRL's, accuracy, entropy, explosions."""
    measured = [*methods_of(study)]
    (justrl,) = (rows[REWARD] for _, stable, rows in measured if stable["Method"] == "JustRL")
    cells = {}
    for touched, stable, rows in measured:
        name = stable["Method"]
        if name == "JustRL":
            gap = f"({float(justrl['Mean']):.3f})"
        elif rows[REWARD].get("JustRL minus it"):
            gap = interval_of(rows[REWARD], "JustRL minus it", "+.3f", -1.0)
        elif f"{name} minus it" in justrl:
            gap = interval_of(justrl, f"{name} minus it", "+.3f")
        else:
            continue
        cells[name] = [
            f"{float(touched['Tokens touched [%]']):.2g}",
            gap,
            f"{float(rows[FIRST]['Mean']):.1f}",
            f"{float(rows[ENTROPY]['Mean']):.2f}",
            stable["Exploded"],
        ]
    return cells


def other_methods() -> Iterator[list[str]]:
    cells = beside_justrl("marked")
    for study in ("marked-both", "marked-doses"):
        cells = beside_justrl(study) | cells
    order = [*beside_justrl("marked"), "S2T and mirror", *beside_justrl("marked-doses")]
    yield from ([name, *cells[name]] for name in dict.fromkeys(order))


def methods_beside_justrl(study: str) -> Iterator[list[str]]:
    yield from ([name, *cells] for name, cells in beside_justrl(study).items())


def rivals() -> Iterator[list[str]]:
    """Yield the methods of both machines, the largest reward first."""
    machines = (("H200", "marked-h200"), ("CPU", "marked-rivals"), ("CPU", "marked-later-rivals"))
    # JustRL and STAPO are the same in both studies on a CPU.
    rows = {
        (name, machine): [name, machine, *cells]
        for machine, study in machines
        for name, cells in beside_justrl(study).items()
    }
    gaps = {"JustRL": 0.0}
    yield from sorted(
        rows.values(), key=lambda row: -gaps.get(row[0], float(row[3].strip("()").split()[0]))
    )


def updates_per_rollout() -> Iterator[list[str]]:
    endpoints = {stable["Method"]: rows for _, stable, rows in methods_of("marked-off-policy")}
    for name in ("JustRL", "CISPO", "DPPO-TV", "KL-Cov"):
        with_4, with_16 = endpoints[name], endpoints[f"{name} 16"][REWARD]
        change = f"{name} 16 minus it"
        above = "" if name == "JustRL" else interval_of(with_16, "JustRL 16 minus it", "+.3f", -1)
        yield [
            name,
            f"{float(with_4[REWARD]['Mean']):.3f}",
            interval_of(with_4[REWARD], change, "+.3f"),
            above,
            *(interval_of(with_4[name], change, "+.1f") for name in (FIRST, LAST)),
        ]


TWINS = [
    ("JustRL", "marked-twins", "marked-rivals"),
    ("JustRL", "marked-h200-twins", "marked-off-policy"),
    *((name, "marked-off-policy", "marked-h200") for name in ("JustRL", "CISPO", "DPPO-TV")),
]


def twins() -> Iterator[list[str]]:
    squares = []
    for method, *studies in TWINS:
        rewards = [
            [
                float(row["Mean"])
                for row in rows_of("endpoints", study)
                if row["Model"] != "all" and row["Method"] == method
                if row["Endpoint"].startswith(HALF)  # Primary only where a study compares.
            ]
            for study in studies
        ]
        gaps = [one - other for one, other in zip(*rewards, strict=True)]
        squares += [gap**2 for gap in gaps]
        yield [method, *(f"`{one}`" for one in studies), *(f"{gap:+.4f}" for gap in gaps)]
    yield ["Root mean square", "", "", f"{fmean(squares) ** 0.5:.4f}", "", "", ""]


def tasks() -> Iterator[list[str]]:
    program = runpy.run_path(str(ROOT / "examples" / "measure" / "domains.py"))
    names = ("smollm2-words-seeds", "domain-sums", "domain-letters", "domain-syllogisms")
    lines = program["table"]({name: program["numbers"](name) for name in names}).splitlines()
    yield from (line.strip("| ").split(" | ") for line in lines[2:])


TABLES = [
    (FINDINGS, trainings),
    (MARKED, other_methods),
    (FINDINGS, marks),
    (RIVALS, rivals),
    (RIVALS, updates_per_rollout),
    (MARKED, partial(methods_beside_justrl, "marked-adaptive")),
    (MARKED, partial(methods_beside_justrl, "marked-targets")),
    (MARKED, later),
    (MARKED, twins),
    (DOMAINS, tasks),
]


@pytest.mark.parametrize(("page", "table"), TABLES)
def test_a_table_is_that_of_the_results(
    page: str, table: Callable[[], Iterator[list[str]]]
) -> None:
    wanted = "\n".join(f"| {' | '.join(cells)} |" for cells in table())
    assert wanted in (ROOT / page).read_text(), wanted


def row_of(table: str, study: str, **cells: str) -> Row:
    """Return the one row of a table with these cells."""
    (row,) = (row for row in rows_of(table, study) if cells.items() <= row.items())
    return row


def gap_of(study: str, endpoint: str, method: str, target: str) -> Interval:
    """Return by how much `target` is above `method`."""
    model = "smollm2-135m-q4" if study.startswith("smollm2") else "all"
    row = row_of("endpoints", study, Model=model, Endpoint=endpoint, Method=method)
    return interval(row, f"{target} minus it")


def said(measured: Interval, form: str, unit: str = "") -> str:
    """Return an interval as in sentences: only its value may have a plus or a unit."""
    ends = (f"{end:{form.lstrip('+')}}" for end in (measured.low, measured.high))
    return f"{measured.value:{form}}{unit} [{', '.join(ends)}]"


def wrong(tokens: str) -> Interval:
    return interval(
        row_of("marks", "marked", Model="all", Method="STAPO", Tokens=tokens), "Wrong [%]"
    )


def silenced(arm: str, control: str) -> Interval:
    heading = f"Entropy [nats], minus random {control}"
    return interval(row_of("silenced_quadrants", "marked", Arm=arm), heading, 1e4)


def in_one_update(method: str, study: str = "marked-rivals") -> Interval:
    row = row_of("method_updates", study, Method=method)
    return interval(row, "Entropy [nats]", 1e4)


def sentences() -> Iterator[tuple[str, str]]:
    """Yield page and numbers of what it says in words."""
    rare, wide = "A > 0, low probability,", "STAPO tau_p 0.05"
    toy = said(gap_of("marked", REWARD, "JustRL", "STAPO"), "+.3f")
    yield FINDINGS, said(gap_of("smollm2-words-longer", REWARD, "JustRL", "STAPO"), "+.2f")
    yield from ((page, toy) for page in (FINDINGS, "README.md", MARKED))
    yield FINDINGS, said(wrong(f"{rare} low entropy (S2T silences)"), ".0f", " %")
    yield FINDINGS, said(wrong(f"{rare} high entropy"), ".0f", " %")
    yield FINDINGS, said(silenced("STAPO", "tokens"), "+.2f")
    yield FINDINGS, said(silenced("STAPO", "candidates"), "+.2f")
    yield FINDINGS, said(silenced("Random rare tokens with A < 0", "tokens"), ".2f")
    yield FINDINGS, said(gap_of("marked", REWARD, "Random tokens", "STAPO"), ".3f")
    yield FINDINGS, said(gap_of("marked-doses", FIRST, "JustRL", wide), ".1f", " points")
    yield MARKED, said(gap_of("marked-doses", REWARD, f"Random tokens {wide[6:]}", wide), ".3f")
    stops = "STAPO above 0.12 nats"
    yield MARKED, said(gap_of("marked-adaptive", REWARD, wide, stops), ".3f")
    yield MARKED, said(gap_of("marked-adaptive", ENTROPY, stops, "JustRL"), ".3f")
    yield MARKED, said(gap_of("marked-adaptive", FIRST, "JustRL", stops), ".1f", " points")
    for endpoint in (REWARD, ENTROPY):
        gap = gap_of("marked-targets", endpoint, "STAPO above 0.08 nats", stops)
        yield MARKED, said(gap, "+.3f")
    for method in ("STAPO", "STARE-O1", "Advantage reweighting"):
        yield MARKED, said(in_one_update(method), "+.2f")
    for method in ("WAPO", "RLVR Directions", "Mirror"):
        yield MARKED, said(in_one_update(method, "marked-later-rivals"), "+.2f")


@pytest.mark.parametrize(("page", "numbers"), sentences())
def test_a_sentence_has_the_numbers_of_the_results(page: str, numbers: str) -> None:
    assert numbers in " ".join((ROOT / page).read_text().split())
