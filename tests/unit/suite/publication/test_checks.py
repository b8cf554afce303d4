"""What `verify` asks of commands and verdicts."""

from dataclasses import replace

import pytest
from synthetic import RIGHT, WRONG

from stapo.suite.publication.checks import command_faults, counted
from stapo.suite.study import merge, parse_study

OURS = ["run", "train", "tiny/stapo/seed0"]
MORE = {"benchmarks": ["chain-2", "chain-3", "chain-4"]}
SWAPPED = {"stapo": {"title": "GRPO"}, "grpo": {"title": "STAPO"}}


@pytest.mark.parametrize(
    ("changes", "command", "last", "fault"),
    [
        ({}, OURS, True, None),
        ({}, ["run", "train", "tiny/stapo/seed1"], True, "trains tiny/stapo/seed1"),
        ({"run": {"seeds": [0, 1]}}, OURS, True, "lists seeds that are not shown: 1"),
        ({"run": MORE}, OURS, True, "lists benchmarks that are not shown: chain-4"),
        # Given up before there were results, or shared with another study.
        ({"run": MORE}, OURS, False, None),
        ({"run": MORE, "name": "other"}, OURS, True, None),
        ({"run": {"methods": ["grpo"]}}, OURS, True, "is of a study without this training"),
        ({"training": {"learning_rate": 0.5}}, OURS, True, "trains with other settings"),
        ({"methods": SWAPPED}, OURS, True,
         "is of stapo, which is shown as STAPO, at that time the title of grpo"),
        ({"methods": {"stapo": {"title": "A new name"}}}, OURS, True, None),
        (None, OURS, True, None),
    ],
)  # fmt: skip
def test_a_command_contradicts_the_study_or_not(raw_study, changes, command, last, fault):
    raw_study["run"]["benchmarks"] = ["chain-2", "chain-3"]
    study = parse_study(raw_study)
    run = next(run for run in study.runs() if run.method == "stapo")
    started = None if changes is None else merge(raw_study, changes)
    attempt = {"command": ["stapo", *command], "study": started}
    assert list(command_faults(study, run, attempt, last)) == ([fault] if fault else [])


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
        (RIGHT, {"verifier": "accepted"}, True, False),
        # Its word decides.
        (WRONG, {"verifier": "accepted"}, True, False),
        (WRONG, {"verifier": "sure"}, True, False),
    ],
)
def test_a_verdict_of_the_verifier_counts_as_it_should(row, stated, judged, right):
    found = replace(row, **stated)
    assert (counted(found, row, judged) == found) == right
