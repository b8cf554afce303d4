"""Studies that come with the project expand into the jobs that they should, without running any."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from studies import SMOKE, studies
from workspace import Workspace

from stapo import paths
from stapo.canonical import canonical
from stapo.repository import ROOT, STUDIES
from stapo.stages import jobs_of
from stapo.study import Study, StudyError, parse_study, read_study
from stapo.study.resolved import (
    read_resolved,
    resolved_path,
    study_fingerprint,
    write_resolved,
)

PROFILES = ROOT / "workflows" / "profiles"
JOBS = {
    # trainings, base models, checkpoints x decodings, times benchmarks; counted by hand
    "smoke": {"train": 4, "base": 1, "generate": 10, "score": 60},
    "paper": {"train": 12, "base": 4, "generate": 150 + 288, "score": 900 + 288},
    "paper-1.7b": {"train": 4, "base": 2, "generate": 50 + 96, "score": 300 + 96},
    "paper-rollouts": {"train": 12, "base": 4, "generate": 150 + 288, "score": 900 + 288},
    "single-gpu": {"train": 4, "base": 1, "generate": 26 + 12, "score": 156 + 12},
    "paper-v3": {"train": 12, "base": 4, "generate": 150 + 288, "score": 900 + 288},
    "ablation-v3": {"train": 12, "base": 4, "generate": 150, "score": 900},
    "ablation-v5": {"train": 11, "base": 2, "generate": 134 + 264, "score": 804 + 264},
    "dose-v5": {"train": 6, "base": 2, "generate": 74 + 144, "score": 444 + 144},
    "sensitivity-v3": {"train": 7, "base": 2, "generate": 43, "score": 43},
    "sensitivity-v5": {"train": 9, "base": 2, "generate": 55, "score": 55},
}
"""Base models count the verifier."""


@pytest.mark.parametrize("name", sorted(path.stem for path in STUDIES.glob("*.yaml")))
def test_a_study_has_the_jobs_that_follow_from_its_file(name):
    study = read_study(STUDIES / f"{name}.yaml")
    of, run, steps = jobs_of(study), study.run, study.training.steps
    trainings = len(run.sizes) * len(run.methods) * len(run.seeds)
    full = {*range(0, steps, study.training.evaluate_every or steps)}
    curve = study.evaluation.curve
    points = {*range(curve.every, steps, curve.every)} - full if curve else set()
    answered = len(run.benchmarks) + len(study.evaluation.development)
    whole = (len(run.sizes) + trainings * len(full)) * len(run.decodings)
    alone = trainings * len(points)
    expected = {
        "train": trainings,
        "base": len(run.sizes) + (study.evaluation.verifier is not None),
        "generate": whole + alone,
        "score": whole * answered + alone * (len(curve.benchmarks) if curve else 0),
    }
    assert {stage: len(of.all(stage)) for stage in expected} == expected == JOBS.get(name, expected)
    published = of.published()
    assert len(published) == len({path.lower() for path in published})


@pytest.mark.parametrize("name", ["smoke", "paper"])
def test_a_dry_run_makes_one_job_of_each(tmp_path, name):
    workspace = Workspace(tmp_path, {})
    workspace.write((STUDIES / f"{name}.yaml").read_text())
    jobs, of = workspace.jobs(), jobs_of(read_study(STUDIES / f"{name}.yaml"))
    assert jobs["train"] == jobs["weights"] == len(of.all("train"))
    for rule in ("generate", "score"):
        assert jobs[rule] + jobs.get(f"{rule}_curve", 0) == len(of.all("generate"))
    assert jobs["base_model"] + jobs.get("verifier_model", 0) == len(of.all("base"))
    once = {"prompts", "overlap", "evidence", "figures", "report", "provenance"}
    assert {rule: jobs[rule] for rule in once} == dict.fromkeys(once, 1)


@pytest.mark.slow
@pytest.mark.parametrize("profile", sorted(p.name for p in PROFILES.iterdir()))
def test_every_profile_is_one(tmp_path, profile):
    workspace = Workspace(tmp_path, {})
    workspace.write((STUDIES / "paper-1.7b.yaml").read_text())
    # The last of two profiles counts.
    done = workspace.snakemake("--workflow-profile", str(PROFILES / profile), "-n", "-p")
    assert done.returncode == 0, done.stdout + done.stderr
    gpus = {"smoke": 1, "workstation": 8, "slurm": 8}[profile]
    assert f"--gpus {gpus} --nodes 1 2>&1 | tee -i logs/paper-1.7b/runs" in done.stdout


MINE = "extends: smoke\nname: mine\n"


@pytest.mark.parametrize(
    "text",
    [
        MINE + "training: {steps: 8, steps: 16}\nrun: {seeds: [1]}\nrun: {seeds: [2]}\n",
        MINE + 'training: {stepps: 8}\n"\\e[31mred\\n": 1\nrun: {seeds: [0, "0", 2020-01-01]}\n',
    ],
    ids=["keys twice", "several"],
)
def test_check_and_snakemake_refuse_the_same_with_the_same_lines(tmp_path, text):
    workspace = Workspace(tmp_path, {})
    workspace.write(text)
    done = workspace.snakemake("-n")
    check = subprocess.run(
        [sys.executable, "-m", "stapo", "check", "study.yaml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, check.returncode) == (2, 2)
    refused = [line for line in done.stderr.splitlines() if line.startswith("study: ")]
    assert refused == [line.replace("stapo: ", "study: ", 1) for line in check.stderr.splitlines()]
    assert refused
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()


def accepted_studies() -> list[dict[str, Any]]:
    """Generated studies that `check` passes, of few enough jobs for a dry run; always the same."""
    found: dict[str, dict[str, Any]] = {}

    @settings(
        derandomize=True, database=None, max_examples=250, suppress_health_check=list(HealthCheck)
    )
    @given(raw=studies())
    def collect(raw: dict[str, Any]) -> None:
        try:
            study = parse_study(raw)
        except StudyError:
            return
        if len(list(study.checkpoints())) < 40:
            found[canonical(study.model_dump())] = raw

    collect()
    return list(found.values())


@pytest.mark.slow
def test_what_check_passes_passes_snakemake(tmp_path):
    accepted = accepted_studies()
    assert len(accepted) > 40
    # The last of them are those with the most in them; one with a checkpoint of the curve alone besides.
    curve = {"every": 40, "benchmarks": ["chain-2"], "decoding": "t1.0-p1.0"}
    with_curve = {**SMOKE, "evaluation": {**SMOKE["evaluation"], "curve": curve}}
    for raw in [*accepted[-45::15], with_curve]:
        workspace, study = Workspace(tmp_path, raw), parse_study(raw)
        workspace.write()
        done = workspace.snakemake("-n", "-p")
        assert done.returncode == 0, done.stdout + done.stderr
        # The commands name the study, which a dry run does not write.
        assert f"--study {resolved_path(study)} " in done.stdout
        assert not (tmp_path / "work").exists()
        write_resolved(study, tmp_path / "elsewhere")
        again = read_resolved(tmp_path / "elsewhere" / resolved_path(study))
        assert study_fingerprint(again) == study_fingerprint(study)


def test_fingerprints_of_trainings_are_those_of_finished_results():
    """A changed one would train anew what has been trained; raise a recipe where that is meant."""
    study: Study = read_study(STUDIES / "miniature.yaml")
    for job in jobs_of(study).all("train"):
        record = ROOT / paths.RUN_PROVENANCE.format(
            study="miniature", **dict(zip(("size", "method"), job.name.split("/"), strict=False)),
            seed=job.name.rpartition("seed")[2],
        )  # fmt: skip
        assert f'"fingerprint": "{job.fingerprint}"' in record.read_text(), job.name
