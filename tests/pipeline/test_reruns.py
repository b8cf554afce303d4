"""An edit reruns what it concerns and nothing else; a failure never leaves old numbers standing."""

import copy
import io
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml
from rich.console import Console
from world import STUDY, World, counted

from stapo import paths
from stapo.operations.status import outdated_lines, print_status, progress
from stapo.repository import ROOT
from stapo.stages import jobs_of
from stapo.study import merge

WHOLE = merge(
    STUDY,
    {
        "name": "whole",
        "run": {
            "methods": ["grpo", "justrl", "mine"],
            "decodings": ["t1.0-p1.0", "t0.7-p0.9"],
            "benchmarks": ["chain-2", "chain-3"],
        },
        "methods": {
            "mine": {
                "base": "stapo",
                "selection": "mine.py:mine",
                "selection_args": {"tau_p": 0.003, "quantile": 0.5},
            }
        },
    },
)
MINE = """
def mine(logps, entropies, advantages, mask, tau_p=0.002, quantile=0.75):
    return mask
"""
SHOWN = {"evidence": 1, "figures": 1, "report": 1, "provenance": 1}
TABLES = {"table_t1_0_p1_0": 1, "table_t0_7_p0_9": 1}
ONE_METHOD = {"train": 1, "weights": 1, "generate": 2, "score": 2, **TABLES, **SHOWN}
ALL_METHODS = {"train": 3, "weights": 3, "generate": 6, "score": 6, **TABLES, **SHOWN}
INTERVENE = {"checkpoints": ["tiny/base", "tiny/justrl/seed0"]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("whole") / "world", WHOLE)
    (world.path / "mine.py").write_text(MINE)
    said = world.run()
    assert "study: whole is finished" in said
    assert "results/whole/report.html" in said
    # A long stage says how far it is in the terminal too, not only in its log.
    log = world.path / "logs/whole/completions/tiny/base/t1.0-p1.0.log"
    assert log.read_text().startswith("configuration ")
    assert log.read_text().strip() in said
    return world


@pytest.fixture
def edited(finished):
    """The finished study, whose file is edited for dry runs."""
    yield finished
    finished.raw = copy.deepcopy(WHOLE)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({"training": {"checkpoint_every": 5}}, {}),
        ({"methods": {"mine": {"selection_args": {"quantile": 0.9}}}}, ONE_METHOD),
        ({"methods": {"mine": {"title": "Mine"}}}, {**TABLES, **SHOWN}),
        ({"training": {"learning_rate": 1e-4}}, ALL_METHODS),
        ({"methods": {"more": {"base": "grpo", "dual_clip": 3.0}},
          "run": {"methods": ["grpo", "justrl", "mine", "more"]}}, ONE_METHOD),
        ({"decodings": {"t0.7-p0.9": {"temperature": 0.8, "top_p": 0.9}}},
         {"generate": 4, "score": 4, "table_t0_7_p0_9": 1, **SHOWN}),
        ({"benchmarks": {"chain-4": {"samples": 2}},
          "run": {"benchmarks": ["chain-2", "chain-3", "chain-4"]}},
         {"overlap": 1, "generate": 8, "score": 8, **TABLES, **SHOWN}),
        ({"interventions": INTERVENE}, {"intervene": 2, **SHOWN}),
        ({"training": {"evaluate_every": 4}}, {**ALL_METHODS, "generate": 6 + 6, "score": 6 + 6}),
    ],
    ids=["nothing", "resuming", "method", "title", "training", "variant", "decoding", "benchmark",
         "interventions", "steps kept"],
)  # fmt: skip
def test_an_edit_reruns_what_depends_on_it(edited, change, expected):
    edited.change(change)
    found = edited.jobs()
    if change == {"training": {"evaluate_every": 4}}:
        # Weights that are kept anew come from training again; what answered before stays where it can.
        assert {**found, "generate": 0, "score": 0} == {**expected, "generate": 0, "score": 0}
    else:
        assert found == expected


def test_order_and_comments_change_nothing(edited):
    def reordered(value):
        if isinstance(value, dict):
            return {key: reordered(value[key]) for key in reversed(value)}
        return value

    edited.raw = reordered(edited.raw)
    assert [*edited.raw["methods"]["mine"]["selection_args"]] == ["quantile", "tau_p"]
    assert edited.jobs() == {}
    stream = io.StringIO()
    print_status(edited.study(), Console(file=stream, width=200), edited.path)
    assert "outdated" not in stream.getvalue()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"training": {"learning_rate": 1e-4}}, "made with training.learning_rate 0.0003 -> 0.0001"),
        ({"methods": {"mine": {"selection_args": {"tau_p": 0.01}}}},
         "method.selection_args.tau_p 0.003 -> 0.01"),
        ({"benchmarks": {"chain-2": {"samples": 2}}}, "benchmark.samples 4 -> 2"),
        ({"decodings": {"t0.7-p0.9": {"temperature": 0.8, "top_p": 0.9}}},
         "made with decoding.temperature 0.7 -> 0.8"),
    ],
)  # fmt: skip
def test_status_names_the_setting_that_changed(edited, change, reason):
    edited.change(change)
    lines = outdated_lines(progress(edited.study(), edited.path))
    assert any(reason in line for line in lines), lines


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("table_t1_0_p1_0", {"overlap": 1, "train": 3, "weights": 3, "generate": 4, "score": 4,
                             "table_t1_0_p1_0": 1}),
        ("method_mine", {"train": 1, "weights": 1, "generate": 2, "score": 2}),
        ("results/whole/scores/tiny/base/t1.0-p1.0/chain-3.parquet", {"generate": 1, "score": 1}),
    ],
)  # fmt: skip
def test_named_targets_ask_for_their_part(tmp_path, target, expected):
    world = World(tmp_path / "world", WHOLE)
    (world.path / "mine.py").write_text(MINE)
    jobs = world.jobs(target)
    jobs.pop(target, None)
    assert {rule: n for rule, n in jobs.items() if rule not in ("base_model", "prompts")} == (
        {rule: n for rule, n in expected.items() if rule != target}
    )


def test_a_study_that_differs_in_one_method_shares_the_rest(finished):
    """Base model and trainings of equal settings are published again, not made again."""
    other = copy.copy(finished)
    other.raw = merge(
        WHOLE, {"name": "other", "methods": {"mine": {"selection_args": {"tau_p": 0.004}}}}
    )
    assert counted(other.run("method_grpo", "method_mine"))["train"] == 2
    weights = "runs/tiny/{method}/seed0/model/model.safetensors"
    for method, same in (("grpo", True), ("mine", False)):
        old, new = (
            other.path / f"results/{name}" / weights.format(method=method)
            for name in ("whole", "other")
        )
        assert (old.stat().st_ino == new.stat().st_ino) == same


def test_a_job_on_a_cluster_has_the_study_that_it_was_made_for(edited):
    """Snakemake starts again there, and the study file may have changed since."""
    named = sorted((edited.path / "work/whole/studies").iterdir())[0].relative_to(edited.path)
    edited.change({"training": {"learning_rate": 1e-4}})
    target = "results/whole/runs/tiny/grpo/seed0/metrics.jsonl"
    (edited.path / "study.yaml").write_text(yaml.safe_dump(edited.raw))
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    command += [target, "--configfile", "study.yaml", "-n", "-p", "--force", "--nolock"]
    done = subprocess.run(
        [*command, "--no-hooks", "--mode", "remote"], cwd=edited.path, check=False,
        env={**os.environ, "STAPO_STUDY": str(named)}, capture_output=True, text=True,
    )  # fmt: skip
    assert f"run train tiny/grpo/seed0 --study {named} " in done.stdout, done.stderr


@pytest.mark.slow
def test_a_failed_training_never_leaves_old_numbers_standing(tmp_path):
    world = World(tmp_path / "world")
    world.run()
    world.change({"methods": {"stapo": {"quantile": 0.5}}})
    (world.path / "FAIL").write_text("train")
    running = world.start("--keep-going")
    said, _ = running.communicate(timeout=300)
    assert running.returncode != 0
    assert "study: not finished" in said
    # The trap: Snakemake now believes that the training has its new parameters.
    assert world.jobs().keys() >= {"train", "table_t1_0_p1_0", "report"}
    (world.path / "FAIL").unlink()
    world.run()
    assert world.jobs() == {}


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_continues_after_a_signal(tmp_path, sent):
    world = World(tmp_path / "world")
    (job,) = jobs_of(world.study()).select("train", "tiny/justrl/seed0")
    metrics, work = (
        job.outputs[0],
        world.path / paths.TRAIN_WORK.format(fingerprint=job.fingerprint),
    )
    running = world.start(metrics)
    deadline = time.monotonic() + 120
    while not (work / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(running.pid, sent)
    said, _ = running.communicate(timeout=120)
    assert running.returncode != 0
    assert not (world.path / metrics).exists()
    if sent == signal.SIGINT:
        assert "study: the same command continues" in said
    assert "study: made what was asked for; what is left: stapo status study.yaml" in (
        world.run(metrics)
    )
    assert (world.path / metrics).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "snakemake --configfile workflows/studies/smoke.yaml"),
        (["--configfile", "workflows/studies/smoke.yaml", "-n", "--workflow-profile", "smokee"],
         "study: --workflow-profile: no such profile: smokee"),
        (["--configfile", "workflows/studies/smoke.yaml", "-n", "--config", "run={seeds: [3, '3']}"],
         "study: run.seeds: '3' is listed twice; remove one (--config)"),
    ],
)  # fmt: skip
def test_bad_arguments_start_nothing_and_name_the_remedy(arguments, said):
    command = [sys.executable, "-m", "snakemake", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
