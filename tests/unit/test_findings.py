"""The numbers of docs/findings.md are those of results/marked."""

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.interventions import QUANTITIES, Updates, arm_title, updates_of
from stapo.analysis.table import with_interval
from stapo.records.arms import NOTHING
from stapo.repository import ROOT, STUDIES
from stapo.study import read_study

SIZES = [f"base-{number}" for number in range(4)]
CHANGES = {"interventions": {"checkpoints": [f"{size}/base" for size in SIZES]}}
COLUMNS = (("entropy", NOTHING, 1e4), ("entropy", "random", 1e4), ("reward", NOTHING, 1e3))


def cell(updates: Updates, name: str, reference: str, unit: float) -> str:
    of = QUANTITIES[name].of
    found = updates.over_bases(
        lambda one: of(one, one.arms[updates.name]) - of(one, one.arms[reference])
    )
    return with_interval(found.times(unit), "+.2f") if updates.name != reference else ""


def test_the_interventions_are_those_of_the_results() -> None:
    study = read_study(STUDIES / "marked.yaml", changes=CHANGES)
    arms = [arm for arm in study.interventions.arms if arm != NOTHING]
    found = updates_of(Artefacts(study, ROOT), arms)
    lines = [
        f"| {arm_title(study, one.name)} | {' | '.join(cell(one, *of) for of in COLUMNS)} |"
        for one in found
    ]
    page = (ROOT / "docs" / "findings.md").read_text()
    assert "\n".join(lines) in page, "\n".join(lines)
    (ours,) = (one for one in found if one.name == "s2t")
    against = cell(ours, "entropy", "random_candidates", 1e4)
    assert f"S2T minus random candidates {against}" in page, against
