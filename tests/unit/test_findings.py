"""The tables of docs/findings.md and docs/rivals.md are those of the results."""

import csv
from collections.abc import Callable, Iterator
from functools import partial
from statistics import fmean

import pytest

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.updates import Updates
from stapo.suite.analysis.formats import with_interval
from stapo.suite.analysis.tables.marks import TOUCHED
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.records.arms import SILENCED
from stapo.suite.repository import ROOT, STUDIES
from stapo.suite.study import read_study

ARMS = {
    "Entropy [nats], minus nothing silenced": 1e4,
    "Entropy [nats], minus random tokens": 1e4,
    "Entropy [nats], minus random candidates": 1e4,
    "Reward, minus random tokens": 1e3,
}
HALF = "training reward, last half"
REWARD = f"{HALF} (primary)"
Row = dict[str, str]


def rows_of(table: str, study: str = "marked") -> list[Row]:
    text = (ROOT / "results" / study / "tables" / f"{table}.csv").read_text()
    return [*csv.DictReader(text.splitlines())]


def interval_of(row: Row, heading: str, form: str, unit: float = 1.0) -> str:
    value, *ends = (unit * float(row[heading + end]) for end in ("", ", low", ", high"))
    return with_interval(Interval(value, *sorted(ends)), form)


def interventions() -> Iterator[list[str]]:
    for row in rows_of("silenced_quadrants"):
        yield [row["Arm"], *(interval_of(row, name, "+.2f", unit) for name, unit in ARMS.items())]


def later() -> Iterator[list[str]]:
    artefacts = Artefacts(read_study(STUDIES / "marked" / "marked-later.yaml"), ROOT)
    for one in artefacts.study.intervened():
        rollouts = [[made] for made in artefacts.intervention(one).numbers.repetitions]
        change = partial(Updates("", SILENCED, rollouts).change, "entropy")
        gaps = [change(arm).times(1e4) for arm in ("random", "random_candidates")]
        method = artefacts.study.title(one.run.method)
        yield [one.size, method, *(with_interval(gap, "+.2f") for gap in gaps)]


def trainings() -> Iterator[list[str]]:
    # No entropy collapses.
    found = [row for row in rows_of("endpoints") if row["Size"] == "all" and row["Mean"] != "100"]
    rows, ours = ([row for row in found if row["Method"] == name] for name in ("JustRL", "STAPO"))
    for row, stapo in zip(rows, ours, strict=True):
        means = [f"{float(one['Mean']):.3g}" for one in (row, stapo)]
        gaps = [f"STAPO minus it{over}" for over in ("", ", over base models")]
        p_value = f"{float(row['STAPO minus it, p']):.3f}"
        yield [row["Endpoint"], *means, *(interval_of(row, one, "+.3g") for one in gaps), p_value]


def marks() -> Iterator[list[str]]:
    for row in rows_of("marks"):
        if (row["Size"], row["Method"]) == ("all", "STAPO") and "A > 0" in row["Tokens"]:
            shares = ("Wrong [%]", "Of all wrong ones [%]")
            yield [row["Tokens"], *(interval_of(row, name, ".1f") for name in shares)]


def arms() -> Iterator[list[str]]:
    yield from arms_of("marked", ["Random tokens", "JustRL-FullMask", "Mirror"])
    yield from arms_of("marked-both", ["S2T and mirror"])


def of_methods(study: str) -> Iterator[tuple[Row, Row, dict[str, Row]]]:
    """Yield dose, stability and endpoints of each method, over all base models."""
    found = [rows_of(table, study) for table in ("dose", "endpoints", "stability")]
    dose, endpoints, stability = ([row for row in of if row["Size"] == "all"] for of in found)
    for touched, stable in zip(dose, stability, strict=True):
        own = (one for one in endpoints if one["Method"] == stable["Method"])
        yield touched, stable, {one["Endpoint"]: one for one in own}


def arms_of(study: str, shown: list[str]) -> Iterator[list[str]]:
    for touched, stable, of in of_methods(study):
        if stable["Method"] not in shown:
            continue
        reward = of[REWARD]
        gaps = [f"{name} minus it" for name in ("STAPO", "JustRL")]
        yield [
            stable["Method"],
            f"{float(touched['Tokens touched [%]']):.3f}",
            f"{float(reward['Mean']):.3f}",
            *(interval_of(reward, gap, "+.3f") if reward.get(gap) else "" for gap in gaps),
            f"{float(of['final accuracy, first decoding [%]']['Mean']):.1f}",
            stable["Exploded"],
        ]


def rivals() -> Iterator[list[str]]:
    for row in rows_of("method_updates", "marked-rivals"):
        units = {"Entropy [nats]": 1e4, "Reward": 1e3}
        changes = [interval_of(row, name, "+.2f", unit) for name, unit in units.items()]
        if touched := float(row["Touched [%]"]):
            yield [row["Method"], f"{touched:.3g}", *changes]


def beside_justrl(study: str) -> Iterator[list[str]]:
    wrong = {
        row["Method"]: interval_of(row, "Wrong [%]", ".2g")
        for row in rows_of("marks", study)
        if (row["Size"], row["Tokens"]) == ("all", TOUCHED)
    }
    for touched, stable, of in of_methods(study):
        reward = of[REWARD]
        if stable["Method"] == "JustRL":
            gap = f"({float(reward['Mean']):.3f})"
        else:
            gap = interval_of(reward, "JustRL minus it", "+.3f", -1.0)
        yield [
            stable["Method"],
            f"{float(touched['Tokens touched [%]']):.2g}",
            wrong.get(stable["Method"], ""),
            f"{float(touched['Updates in which it acts [%]']):.0f}",
            gap,
            *last_numbers(stable, of),
        ]


def last_numbers(stable: Row, of: dict[str, Row]) -> list[str]:
    accuracies = (f"final accuracy, {which} decoding [%]" for which in ("first", "last"))
    shown = [f"{float(of[name]['Mean']):.1f}" for name in accuracies]
    return [*shown, f"{float(of['entropy, last tenth [nats]']['Mean']):.2f}", stable["Exploded"]]


def updates_per_rollout() -> Iterator[list[str]]:
    found = [*of_methods("marked-off-policy")]
    rewards = {stable["Method"]: of[REWARD] for _, stable, of in found}
    for touched, stable, of in found:
        method, _, updates = (name := stable["Method"]).partition(" ")
        gaps = ["", ""]
        if updates:  # Minus that with 4.
            sign, row, target = (1, method, name) if updates == "16" else (-1, name, "JustRL")
            gaps[0] = interval_of(rewards[row], f"{target} minus it", "+.3f", sign)
        if method != "JustRL":
            over = f"JustRL {updates}".strip() + " minus it"
            gaps[1] = interval_of(rewards[name], over, "+.3f", -1)
        share, reward = float(touched["Tokens touched [%]"]), float(rewards[name]["Mean"])
        numbers = [f"{share:.2g}", f"{reward:.3f}"]
        yield [method, updates or "4", *numbers, *gaps, *last_numbers(stable, of)]


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
                if row["Size"] != "all" and row["Method"] == method
                if row["Endpoint"].startswith(HALF)  # Primary only where a study compares.
            ]
            for study in studies
        ]
        gaps = [one - other for one, other in zip(*rewards, strict=True)]
        squares += [gap**2 for gap in gaps]
        yield [method, *(f"`{one}`" for one in studies), *(f"{gap:+.4f}" for gap in gaps)]
    yield ["Root mean square", "", "", f"{fmean(squares) ** 0.5:.4f}", "", "", ""]


TABLES = [
    *(("findings", one) for one in (interventions, later, trainings, arms, marks)),
    ("findings", partial(beside_justrl, "marked-doses")),
    *(("rivals", partial(beside_justrl, one)) for one in ("marked-h200", "marked-rivals")),
    *(("rivals", one) for one in (rivals, updates_per_rollout, twins)),
]


@pytest.mark.parametrize(("page", "table"), TABLES)
def test_a_table_is_that_of_the_results(page: str, table: Callable[[], Iterator[list[str]]]):
    wanted = "\n".join(f"| {' | '.join(cells)} |" for cells in table())
    assert wanted in (ROOT / "docs" / f"{page}.md").read_text(), wanted
