"""Time limits of jobs: what the cost model says times a margin, at most the cluster's maximum."""

from math import ceil
from pathlib import Path

import pytest
from stapo.operations.limits import (
    LEAST_MINUTES,
    MARGIN,
    MAX_NOTICE_SECONDS,
    Cluster,
    generate_attempts,
    generate_minutes,
    notice_seconds,
    score_minutes,
    train_attempts,
    train_minutes,
)

from stapo.operations.plan import found_of, machine, plan
from stapo.repository import STUDIES
from stapo.study import Checkpoint, StudyError, TrainingRun, parse_study, read_study

PAPER = read_study(STUDIES / "paper.yaml")
SMOKE = read_study(STUDIES / "smoke.yaml")
H100 = Cluster("h100", 8)
DAY = Cluster("h100", 8, max_hours=24)
DECODING = PAPER.run.decodings[0]


@pytest.fixture(scope="module")
def rows():
    return {
        (row.stage, row.what): row
        for row in plan(PAPER, machine(PAPER, "h100", 8), found_of(PAPER, Path("/nowhere")))
    }


@pytest.mark.parametrize("size", PAPER.run.sizes)
def test_a_job_requests_what_the_plan_says_times_the_margin(rows, size):
    for method in PAPER.run.methods:
        found = train_minutes(PAPER, H100, TrainingRun(size, method, 0))
        assert found == ceil(60 * MARGIN * rows["train", f"{size} {method}"].longest)
    last, curve = Checkpoint(size, "stapo", 0), Checkpoint(size, "stapo", 0, step=100)
    for checkpoint, what in ((last, size), (curve, f"{size} curve")):
        found = generate_minutes(PAPER, H100, checkpoint, DECODING)
        assert found == ceil(60 * MARGIN * rows["generate", what].longest)


def test_no_job_requests_more_than_the_maximum(rows):
    run = TrainingRun("14B", "stapo", 0)
    assert train_minutes(PAPER, DAY, run) == 24 * 60
    assert generate_minutes(PAPER, DAY, Checkpoint("14B"), DECODING) == 24 * 60
    # The others request what they need.
    assert generate_minutes(PAPER, DAY, Checkpoint("1.7B"), DECODING) < 24 * 60


def test_there_are_as_many_attempts_as_the_longest_job_needs(rows):
    longest = max(row.longest for row in rows.values() if row.stage == "train")
    notice = max(notice_seconds(PAPER, DAY, run) for run in PAPER.runs()) / 3600
    attempts = train_attempts(PAPER, DAY)
    # Time at the end of each attempt, after the notice, trains nothing.
    assert attempts * (24 - notice) >= MARGIN * longest > (attempts - 1) * (24 - notice - 0.1)
    assert generate_attempts(PAPER, DAY) == 2
    assert train_attempts(PAPER, H100) == generate_attempts(PAPER, H100) == 1


def test_the_notice_leaves_time_for_the_longest_step_and_its_checkpoint():
    """With a rollout of 2,048 responses it takes as long as four mean steps of the plan."""
    small, large = (TrainingRun(size, "stapo", 0) for size in ("1.7B", "14B"))
    step = train_minutes(PAPER, H100, small) * 60 / MARGIN / PAPER.training.steps
    assert 4 * step * MARGIN < notice_seconds(PAPER, H100, small) < 30 * 60
    assert (
        notice_seconds(PAPER, H100, small) < notice_seconds(PAPER, H100, large) < MAX_NOTICE_SECONDS
    )


def test_a_slower_kind_of_gpu_gets_more_time():
    run = TrainingRun("8B", "stapo", 0)
    assert train_minutes(PAPER, Cluster("a100", 8), run) > train_minutes(PAPER, H100, run)
    with pytest.raises(StudyError, match="gpu_kind: unknown 'h1000'; known: h200, h100"):
        train_minutes(PAPER, Cluster("h1000", 8), run)


def test_short_jobs_and_unknown_models_get_a_limit_too():
    assert train_minutes(SMOKE, Cluster(), TrainingRun("tiny", "stapo", 0)) == LEAST_MINUTES
    assert score_minutes(SMOKE, Cluster(), "chain-2") == LEAST_MINUTES
    raw = SMOKE.model_dump(mode="json", exclude_none=True)
    raw["models"]["tiny"] = {"hub": "nobody/knows", "revision": "0" * 40}
    raw["evaluation"]["verifier"] = {"hub": "nobody/knows-either", "revision": "0" * 40}
    unknown = parse_study(raw)
    day_and_half = 24 * 60 * MARGIN
    assert train_minutes(unknown, Cluster(), TrainingRun("tiny", "stapo", 0)) == day_and_half
    assert generate_minutes(unknown, Cluster(), Checkpoint("tiny"), DECODING) == day_and_half
    assert score_minutes(unknown, Cluster(), "chain-2") == day_and_half
    assert notice_seconds(unknown, Cluster(), TrainingRun("tiny", "stapo", 0)) == 3600
