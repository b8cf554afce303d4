"""Numbers and tables of interventions whose truth is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from synthetic_interventions import MOVED, write_intervention

from stapo.core.files import DamagedFileError, write_json
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.gradients import spurious_at_weights
from stapo.suite.analysis.tables.gradient_norms import make as gradient_norms
from stapo.suite.analysis.tables.interventions import lemma, make as interventions_table
from stapo.suite.analysis.tables.silenced_quadrants import make as silenced_quadrants
from stapo.suite.jobs import jobs_of
from stapo.suite.records.arms import ARMS, CONTROLS, NOTHING, SILENCED
from stapo.suite.records.interventions import TokenGradient, as_json, read_intervention
from stapo.suite.study import Checkpoint, Study, parse_study

FIRST = Checkpoint("tiny", "justrl", 0)


@pytest.fixture
def study(raw_study: dict[str, Any]) -> Study:
    raw_study["name"] = "demo"
    raw_study["run"]["seeds"] = [0, 1]
    raw_study["interventions"] = {"checkpoints": ["tiny/justrl/seed0", "tiny/justrl/seed1"]}
    return parse_study(raw_study)


def made(study: Study, root: Any, *moved: Any, **how: Any) -> Artefacts:
    """Return the artefacts of a study; the last of `moved` is of all further checkpoints."""
    for index, checkpoint in enumerate(study.intervened()):
        own = moved[min(index, len(moved) - 1)] if moved else MOVED
        write_intervention(root, study, checkpoint, own, **how)
    return Artefacts(study, root)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tokens_that_obey_the_lemma_have_its_correlation(study, tmp_path, sign):
    tokens = made(study, tmp_path, sign=sign).intervention(FIRST).tokens
    found, right = lemma(tokens)
    assert found.value == pytest.approx(sign, abs=0.01)
    assert found.high - found.low < 0.02
    correlations, expected = [], 0
    for _, own in tokens.groupby("repetition"):
        x, y = own["logp"], np.exp(own["logp"]) * own["advantage"]
        change = own["entropy_after"] - own["entropy"]
        correlations.append(spearmanr(-y * (x + own["entropy"]), change).statistic)
        expected += (-np.mean((x - x.mean()) * (y - y.mean())) > 0) == (change.sum() > 0)
    assert (found.value, right) == (pytest.approx(np.mean(correlations), abs=1e-3), expected)


def test_the_table_shows_what_was_made_up(study, tmp_path):
    grid = interventions_table(made(study, tmp_path))
    shown = [{c.heading: c.shown(row) for c in grid.columns} for row in grid.rows]
    titles = ["Nothing silenced", "STAPO", *(ARMS[arm] for arm in CONTROLS)]
    assert [row["Arm"] for row in shown[:5]] == titles
    assert [row["Silenced tokens"] for row in shown[:2]] == ["0.0", "3.0"]
    assert shown[1]["Entropy [nats]"].value == pytest.approx(0.008, abs=2e-4)
    assert "rank correlation of the lemma's prediction" in grid.notes[-1]


def test_gradients_of_tokens_are_weighted_and_compared_by_rollouts(study, tmp_path):
    settings = study.interventions.model_copy(update={"gradient_tokens": 2, "repetitions": 3})
    study = study.model_copy(update={"interventions": settings})
    artefacts = made(study, tmp_path)
    path = tmp_path / jobs_of(study).job("intervene", FIRST).outputs[0]
    before = read_intervention(path)
    # The last rollout has no candidate and no token.
    norms = [{"rare, sure": (6.0, 2.0), "likely, unsure": (3.0, 1.0)}] * 2 + [{}]
    changed = [
        replace(
            one,
            gradients=tuple(
                TokenGradient(
                    quadrant=name, weight=1.0 + index, logp=-1.0,
                    at_logits=number / 10, at_weights=number + one.repetition,
                )
                for name, numbers in quadrants.items()
                for index, number in enumerate(numbers)
            ),
        )
        for one, quadrants in zip(before.repetitions, norms, strict=True)
    ]  # fmt: skip
    write_json(path, as_json(replace(before, repetitions=tuple(changed))))
    table = gradient_norms(artefacts)
    rows = [[column.value(row) for column in table.columns] for row in table.rows]
    (first, empty, _, last), headings = rows[:4], [column.heading for column in table.columns]
    assert headings[3::2] == ["Mean norm at the logits", "Mean norm at all weights"]
    assert first[0] == "tiny, JustRL, seed 0"
    assert (first[2], empty[2], last[2]) == (4, 0, 4)
    # Weights 1 and 2: (6 + 2 * 2) / 3 and (3 + 2) / 3, and half a unit more on average at the weights.
    assert [first[3].value, last[3].value] == pytest.approx([1 / 3, 1 / 6])
    assert [first[5].value, last[5].value] == pytest.approx([10 / 3 + 0.5, 5 / 3 + 0.5])
    assert first[6].value == pytest.approx(100 * (23 / 13 - 1))
    assert first[6].low < first[6].value < first[6].high
    assert np.isnan([empty[3].value, last[4].value, last[6].value]).all()
    titles, against = spurious_at_weights(artefacts, "justrl", "tiny")
    assert titles == "JustRL"
    assert against.value == pytest.approx(first[6].value)
    assert spurious_at_weights(artefacts, "stapo", "tiny") is None


def test_arms_over_quadrants_are_compared_over_base_models(raw_study, tmp_path):
    raw_study["models"]["other"] = raw_study["models"]["tiny"]
    raw_study["run"] |= {"models": ["tiny", "other"], "seeds": [0, 1]}
    names = ["tiny/justrl/seed0", "tiny/justrl/seed1", "other/justrl/seed0", "other/base"]
    raw_study["interventions"] = {"checkpoints": names, "controls": ["mirror", "random"]}
    study = parse_study(raw_study)
    moves = [{SILENCED: -0.004, "random": -0.001 * index, NOTHING: 0.0} for index in (1, 3, 4, 0)]
    grid = silenced_quadrants(made(study, tmp_path, *moves, noise=0))
    assert [(row.at, row.name) for row in grid.rows] == [
        (title, arm) for title in ("JustRL", "Base") for arm in (SILENCED, "mirror", "random")
    ]
    found = grid.rows[0].over_units(
        lambda one: one.arms[SILENCED].entropy - one.arms["random"].entropy
    )
    # Of the base models: -0.004 + (0.001 + 0.003) / 2 and -0.004 + 0.004.
    half = 12.706 * 0.001  # Student's t of one degree of freedom.
    assert (found.value, found.high - found.value) == pytest.approx((-0.001, half), abs=1e-7)
    cells = {column.heading: column.value(grid.rows[0]) for column in grid.columns}
    assert [*cells.values()][:2] == ["JustRL", "STAPO"]
    assert cells["Entropy [nats], minus random tokens"] == found


def test_missing_and_outdated_files_are_named(study, tmp_path):
    write_intervention(tmp_path, study, FIRST)
    with pytest.raises(DamagedFileError, match=r"seed1\.json: missing; run snakemake"):
        interventions_table(Artefacts(study, tmp_path))
    other = study.interventions.model_copy(update={"prompts": 99})
    changed = study.model_copy(update={"interventions": other})
    with pytest.raises(DamagedFileError, match="made with other settings"):
        Artefacts(changed, tmp_path).intervention(FIRST)
