"""The reason why something is made again names the setting that changed, with both values."""

import io

import pytest
from rich.console import Console
from synthetic import write_score

from stapo import paths
from stapo.files import write_json
from stapo.operations.plan import machine, print_plan
from stapo.operations.reasons import UNKNOWN, changes, score_reason, training_reason
from stapo.operations.status import outdated_lines, print_status
from stapo.study import Checkpoint, TrainingRun, identity, merge, parse_study
from stapo.study.resolved import write_resolved

RUN = TrainingRun("tiny", "stapo", 0)


def publish(study, root):
    """A finished training, as far as its record and metrics go."""
    at = {"study": study.name, **RUN.wildcards}
    config = identity.train_config(study, RUN)
    made_by = identity.train_fingerprint(study, RUN)
    write_json(root / paths.RUN_PROVENANCE.format(**at), {"fingerprint": made_by, "config": config})
    (root / paths.METRICS.format(**at)).write_text("{}\n")


@pytest.fixture
def study(raw_study):
    raw_study["run"] |= {
        "methods": ["stapo"], "decodings": ["t1.0-p1.0"], "benchmarks": ["chain-2"],
    }  # fmt: skip
    return parse_study(raw_study)


def changed(raw_study, change):
    return parse_study(merge(raw_study, change))


def test_changes_are_named_with_both_values_and_the_rest_is_counted():
    assert changes({"a": {"b": 1}, "c": "x"}, {"a": {"b": 2.5}, "c": "x"}) == "a.b 1 -> 2.5"
    assert changes({"a": 1}, {"a": 1, "b": None}) == "b (none) -> null"
    assert changes({"b": "y", "a": 1}, {"a": 1}) == 'b "y" -> (none)'
    many = changes(dict.fromkeys("abcde", 1), dict.fromkeys("abcde", 2))
    assert many == "a 1 -> 2, b 1 -> 2, c 1 -> 2, 2 more"
    assert changes({"a": 1}, {"a": 1}) == ""
    assert "\x1b" not in changes({"\x1b[31m": "\x1b"}, {})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"methods": {"stapo": {"tau_p": 0.01}}},
            "method.selection_args.tau_p 0.002 -> 0.01",
        ),
        ({"training": {"learning_rate": 1e-4}}, "training.learning_rate 0.0003 -> 0.0001"),
        (
            {"models": {"tiny": {"supervised_steps": 7}}},
            "base.model.supervised_steps 400 -> 7",
        ),
    ],
    ids=["method", "training", "model"],
)
def test_of_a_training(raw_study, study, tmp_path, change, reason):
    publish(study, tmp_path)
    assert outdated_lines(study, tmp_path) == []
    now = changed(raw_study, change)
    assert training_reason(now, tmp_path, RUN) == reason
    assert outdated_lines(now, tmp_path) == [f"outdated: tiny/stapo/seed0: made with {reason}"]
    # Both commands say so.
    for show in (print_status, lambda *args: print_plan(args[0], machine("cpu"), *args[1:])):
        stream = io.StringIO()
        show(now, Console(file=stream, width=200), tmp_path)
        assert reason in stream.getvalue()


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"config": 1}', '{"config": {"a": NaN}}'])
def test_of_a_training_with_a_strange_record(study, tmp_path, record):
    path = tmp_path / paths.RUN_PROVENANCE.format(study=study.name, **RUN.wildcards)
    path.parent.mkdir(parents=True)
    path.write_text(record)
    assert training_reason(study, tmp_path, RUN)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"decodings": {"t1.0-p1.0": {"temperature": 0.8}}}, "decoding.temperature 1.0 -> 0.8"),
        ({"evaluation": {"seed": 7}}, "evaluation.seed 1234 -> 7"),
        ({"benchmarks": {"chain-2": {"samples": 2}}}, "benchmark.samples 4 -> 2"),
        ({"models": {"tiny": {"seed": 3}}}, "model.seed 0 -> 3"),
    ],
    ids=["decoding", "evaluation", "benchmark", "model"],
)
def test_of_scores(raw_study, study, tmp_path, change, reason):
    cell = Checkpoint("tiny"), "t1.0-p1.0", "chain-2"
    write_score(tmp_path, study, cell[0], cell[2])
    now = changed(raw_study, change)
    assert score_reason(now, tmp_path, *cell) == UNKNOWN
    write_resolved(study, tmp_path)
    # Another version that made other scores, and a damaged one.
    write_resolved(changed(raw_study, {"evaluation": {"seed": 99}}), tmp_path)
    (tmp_path / "work/smoke/studies/0.json").write_text("{")
    assert score_reason(now, tmp_path, *cell) == reason
