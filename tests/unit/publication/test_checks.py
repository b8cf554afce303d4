"""What `verify` asks of commands and verdicts, and that the results of the repository hold."""

import copy
from dataclasses import replace

import pytest

from stapo.files import fingerprint
from stapo.publication.checks import command_faults, counted, is_earlier
from stapo.publication.verify import verify
from stapo.records.scores import ScoreRow
from stapo.repository import ROOT
from stapo.stages import jobs_of
from stapo.study import merge, parse_study

EARLIER = ["train", "--size", "tiny", "--method", "stapo", "--seed", "0", "--study", "s"]
"""How trainings were named before; those in results/ are."""
MORE = {"benchmarks": ["chain-2", "chain-3", "chain-4"]}


@pytest.mark.parametrize(
    ("changes", "command", "last", "fault"),
    [
        ({}, EARLIER, True, None),
        ({}, ["run", "train", "tiny/stapo/seed0"], True, None),
        ({}, ["run", "train", "tiny/stapo/seed1"], True, "trains tiny/stapo/seed1"),
        ({"run": {"seeds": [0, 1]}}, EARLIER, True, "lists seeds that are not shown: 1"),
        ({"run": MORE}, EARLIER, True, "lists benchmarks that are not shown: chain-4"),
        # Given up before there were results, or shared with another study.
        ({"run": MORE}, EARLIER, False, None),
        ({"run": MORE, "name": "other"}, EARLIER, True, None),
        ({"run": {"methods": ["grpo"]}}, EARLIER, True, "is of a study without this training"),
        ({"training": {"learning_rate": 0.5}}, EARLIER, True, "trains with other settings"),
        (None, EARLIER, True, None),
    ],
)
def test_a_command_contradicts_the_study_or_not(raw_study, changes, command, last, fault):
    raw_study["run"]["benchmarks"] = ["chain-2", "chain-3"]
    study = parse_study(raw_study)
    run = next(run for run in study.runs() if run.method == "stapo")
    started = None if changes is None else merge(raw_study, changes)
    attempt = {"command": ["stapo", *command], "study": started}
    assert list(command_faults(study, run, attempt, last)) == ([fault] if fault else [])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda config: config["method"].pop("dual_clip"), True),
        (lambda config: config["training"].update(learning_rate=0.5), False),
        (lambda config: config["method"].update(unknown=1), False),
        (lambda config: None, False),  # of this version
    ],
)
def test_a_training_of_an_earlier_version_has_today_s_settings_without_some(
    raw_study, change, expected
):
    study = parse_study(raw_study)
    job = jobs_of(study).one("train", next(study.runs()))
    config = copy.deepcopy(job.config)
    change(config)
    assert is_earlier({"config": config, "fingerprint": fingerprint(config)}, job) == expected


WRONG = ScoreRow(0, 0, "7", "8", "wrong", False, 3, False, False, "not_asked", False, False)
RIGHT = replace(WRONG, answer="7", verdict="correct", correct=True, correct_with_verifier=True)


@pytest.mark.parametrize(
    ("row", "stated", "judged", "right"),
    [
        (WRONG, {}, False, True),
        (RIGHT, {}, False, True),
        # A verifier that judges is asked about everything that the rules reject, and nothing else.
        (WRONG, {}, True, False),
        (WRONG, {"verifier": "rejected"}, True, True),
        (WRONG, {"verifier": "accepted", "correct_with_verifier": True}, True, True),
        (WRONG, {"verifier": "accepted", "correct_with_verifier": True}, False, False),
        (RIGHT, {"verifier": "accepted"}, False, False),
        (RIGHT, {"correct_with_verifier": False}, False, False),
        # Its word decides.
        (WRONG, {"verifier": "accepted"}, True, False),
        (WRONG, {"verifier": "sure"}, True, False),
    ],
)
def test_a_verdict_of_the_verifier_counts_as_it_should(row, stated, judged, right):
    found = replace(row, **stated)
    assert (counted(found, row, judged) == found) == right


COMMITTED = [
    ROOT / "results" / name for name in ("miniature", "miniature-1m", "miniature-ablation")
]


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_the_results_of_the_repository_hold(folder):
    said: list[str] = []
    assert not verify(folder, said.append)["failed"], said
