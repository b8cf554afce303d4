"""Numbers, verdict and tables of interventions whose truth is known."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from synthetic_interventions import MOVED, repetition, write_intervention

from stapo.analysis import interventions as effects
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.tables.interventions import make as interventions_table
from stapo.analysis.tables.silenced_quadrants import make as silenced_quadrants
from stapo.files import DamagedFileError
from stapo.records.arms import ARMS, CONTROLS, NOTHING, SILENCED
from stapo.study import Checkpoint, Study, parse_study

FIRST = Checkpoint("tiny", "justrl", 0)
WORSE = {**MOVED, SILENCED: -0.03}
EQUAL = dict.fromkeys(ARMS, -0.01)
USUAL = [ARMS[arm] for arm in CONTROLS]
AS_RANDOM = {**MOVED, "random_positive": -0.002}
UPWARDS = {**MOVED, SILENCED: 0.004}
OPEN = "cannot be decided"


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


@pytest.mark.parametrize(
    ("moved", "noise", "verdict"),
    [
        (MOVED, 1e-4, "yes"),
        (UPWARDS, 1e-4, "yes"),  # What counts is how far the entropy moves.
        (WORSE, 1e-4, "no"),
        (EQUAL, 1e-4, OPEN),
        (AS_RANDOM, 1e-4, OPEN),  # Any silencing would do.
        (MOVED, 0.1, OPEN),
    ],
)
def test_the_verdict_of_a_checkpoint_follows_from_what_was_made_up(moved, noise, verdict):
    found = effects.effect_at(FIRST, [repetition(number, moved, noise) for number in range(8)])
    assert found.verdict == verdict
    assert {*found.against} == {*effects.CONTROLS}
    expected = abs(moved[SILENCED]) - abs(moved[NOTHING])
    one = found.against[NOTHING]
    # With more noise, the absolute value is too large on average.
    assert noise > 0.01 or one.low <= expected <= one.high


@pytest.mark.parametrize(
    ("moved", "verdict", "reason"),
    [
        ([MOVED], "yes", "2 training seeds"),
        ([WORSE], "no", "2 training seeds"),
        ([MOVED, WORSE], OPEN, "do not agree"),
        ([EQUAL], OPEN, "leave it open"),
    ],
)
def test_checkpoints_of_two_seeds_decide_together(study, tmp_path, moved, verdict, reason):
    found = effects.causal_effect(made(study, tmp_path, *moved))
    assert (found.verdict, len(found.effects)) == (verdict, 2)
    assert reason in found.reason


def test_the_prediction_is_the_formula():
    # A rare token of low entropy with A > 0 raises the entropy, a likely one of high entropy lowers it.
    logps, entropies = np.array([-6.0, -0.5]), np.array([0.5, 2.0])
    found = effects.predicted_change(logps, entropies, np.array([1.0, 3.0]))
    assert found == pytest.approx([-math.exp(-6) * (-6 + 0.5), -math.exp(-0.5) * 1.5 * 3])


def test_rank_correlation_is_spearmans_with_ties():
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 10, 200).astype(float), rng.integers(0, 10, 200).astype(float)
    other += one
    assert effects.rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)
    assert math.isnan(effects.rank_correlation(np.zeros(3), np.arange(3.0)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tokens_that_obey_the_lemma_have_its_correlation(study, tmp_path, sign):
    artefacts = made(study, tmp_path, sign=sign)
    found = effects.lemma_correlation(artefacts, FIRST)
    assert found.value == pytest.approx(sign, abs=0.01)
    assert found.high - found.low < 0.02
    assert effects.lemma_sizes(artefacts, FIRST).value == pytest.approx(1, abs=0.01)
    # A predicted change below the resolution of single precision has no sign.
    assert effects.lemma_signs(artefacts, FIRST).value == pytest.approx(50 + 50 * sign, abs=2)
    # By a plain loop over the recorded tokens.
    right, total = effects.covariance_signs(artefacts, FIRST)
    tokens, expected = artefacts.intervention(FIRST).tokens, 0
    for number in {*tokens["repetition"]}:
        rows = [row for row in tokens.itertuples() if row.repetition == number]
        x = [row.logp for row in rows]
        y = [math.exp(row.logp) * row.advantage for row in rows]
        mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
        covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
        change = sum(row.entropy_after - row.entropy for row in rows)
        expected += (-covariance > 0) == (change > 0)
    assert (right, total) == (expected, len({*tokens["repetition"]}))


def test_the_table_shows_what_was_made_up(study, tmp_path):
    artefacts = made(study, tmp_path)
    grid = interventions_table(artefacts)
    shown = [{c.heading: c.shown(row) for c in grid.columns} for row in grid.rows]
    titles = ["Nothing silenced", "STAPO", *USUAL]
    assert [row["Arm"] for row in shown[:5]] == titles
    assert [row["Silenced tokens"] for row in shown[:2]] == ["0.0", "3.0"]
    assert float(shown[1]["Entropy [nats]"].split()[0]) == pytest.approx(0.008, abs=2e-4)
    assert any("Does silencing cause stability here? Yes." in note for note in grid.notes)


def test_arms_over_quadrants_are_compared_over_base_models(raw_study, tmp_path):
    raw_study["models"]["other"] = raw_study["models"]["tiny"]
    raw_study["run"] |= {"sizes": ["tiny", "other"], "seeds": [0, 1]}
    names = ["tiny/justrl/seed0", "tiny/justrl/seed1", "other/justrl/seed0", "other/base"]
    raw_study["interventions"] = {"checkpoints": names, "controls": ["mirror", "random"]}
    study = parse_study(raw_study)
    moves = [{SILENCED: -0.004, "random": -0.001 * index, NOTHING: 0.0} for index in (1, 3, 4, 0)]
    artefacts = made(study, tmp_path, *moves, noise=0)
    found = effects.over_bases(artefacts, "entropy", SILENCED, "random", "justrl")
    # Of the base models: -0.004 + (0.001 + 0.003) / 2 and -0.004 + 0.004.
    half = 12.706 * 0.001  # Student's t of one degree of freedom.
    assert (found.value, found.high - found.value) == pytest.approx((-0.001, half), abs=1e-7)
    grid = silenced_quadrants(artefacts)
    assert [(row.method, row.arm) for row in grid.rows] == [
        (method, arm) for method in ("justrl", None) for arm in (SILENCED, "mirror", "random")
    ]
    cells = [column.shown(grid.rows[0]) for column in grid.columns]
    assert cells[:2] == ["JustRL", "STAPO"]
    assert any(cell.startswith("-0.001 [") for cell in cells)


def test_missing_and_outdated_files_are_named(study, tmp_path):
    write_intervention(tmp_path, study, FIRST)
    with pytest.raises(DamagedFileError, match=r"seed1\.json: missing; run snakemake"):
        effects.causal_effect(Artefacts(study, tmp_path))
    other = study.interventions.model_copy(update={"prompts": 99})
    changed = study.model_copy(update={"interventions": other})
    with pytest.raises(DamagedFileError, match="made with other settings"):
        Artefacts(changed, tmp_path).intervention(FIRST)
