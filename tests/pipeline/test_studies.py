"""Every study that comes with the project expands into the jobs that it should, without running any."""

import shutil
import subprocess
import sys
from typing import Any

import pytest
from conftest import Workspace
from hypothesis import HealthCheck, given, settings
from studies import SMOKE, studies

from stapo import paths
from stapo.canonical import canonical
from stapo.repository import ROOT, STUDIES
from stapo.study import Study, StudyError, parse_study, read_study
from stapo.study.identity import study_fingerprint
from stapo.study.resolved import read_resolved, resolved_path, write_resolved

PROFILES = ROOT / "workflows" / "profiles"
JOBS = {
    # trainings, base models, checkpoints x decodings, times benchmarks
    "smoke": {"train": 4, "base_model": 1, "generate": 10, "score": 60},
    "paper": {
        "train": 12,
        "base_model": 3,
        "generate": 150,
        "generate_curve": 288,  # 24 steps of each training
        "score": 900 + 288,
        "verifier_model": 1,
    },
    "paper-1.7b": {
        "train": 4,
        "base_model": 1,
        "generate": 50,
        "generate_curve": 96,
        "score": 300 + 96,
        "verifier_model": 1,
    },
    "single-gpu": {
        "train": 4,
        "base_model": 1,
        "generate": 26,
        "generate_curve": 12,
        "score": 156 + 12,
    },
    "paper-rollouts": {
        "train": 12,
        "base_model": 3,
        "generate": 150,
        "generate_curve": 288,
        "score": 900 + 288,
        "verifier_model": 1,
    },
    "ablation-v3": {
        "train": 12,
        "base_model": 3,
        "generate": 150,
        "score": 900,
        "verifier_model": 1,
    },
    "ablation-v5": {
        "train": 11,
        "base_model": 1,
        "generate": 134,
        "generate_curve": 264,
        "score": 804 + 264,
        "verifier_model": 1,
    },
    "dose-v5": {
        "train": 6,
        "base_model": 1,
        "generate": 74,
        "generate_curve": 144,
        "score": 444 + 144,
        "verifier_model": 1,
    },
    "sensitivity-v3": {
        "train": 7,
        "base_model": 1,
        "generate": 43,
        "score": 43,
        "verifier_model": 1,
    },
    "sensitivity-v5": {
        "train": 9,
        "base_model": 1,
        "generate": 55,
        "score": 55,
        "verifier_model": 1,
    },
}


NAMES = sorted(path.stem for path in STUDIES.glob("*.yaml"))


def expected_jobs(study: Study) -> dict[str, int]:
    """Count the jobs of a study that differ between studies, from its file alone."""
    run, evaluation, steps = study.run, study.evaluation, study.training.steps
    full = {*range(0, steps, study.training.evaluate_every or steps)}
    curve = evaluation.curve
    points = {*range(curve.every, steps, curve.every)} - full if curve else set()
    trainings = len(run.sizes) * len(run.methods) * len(run.seeds)
    checkpoints = len(run.sizes) + trainings * len(full)
    answered = len(run.benchmarks) + len(evaluation.development)
    generate, generate_curve = checkpoints * len(run.decodings), trainings * len(points)
    scored_curve = generate_curve * len(curve.benchmarks) if curve else 0
    jobs = {
        "train": trainings,
        "base_model": len(run.sizes),
        "generate": generate,
        "generate_curve": generate_curve,
        "score": generate * answered + scored_curve,
        "verifier_model": int(evaluation.verifier is not None),
        "intervene": len(study.interventions.checkpoints),
    }
    return {rule: count for rule, count in jobs.items() if count}


def test_no_counted_study_is_missing():
    assert JOBS.keys() <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_makes_the_jobs_of_the_study(tmp_path, name):
    workspace = Workspace(tmp_path, {})
    for beside in STUDIES.glob("*.[!y]*"):  # What a study may name.
        shutil.copy(beside, tmp_path)
    workspace.write((STUDIES / f"{name}.yaml").read_text())
    jobs = workspace.jobs()
    study = read_study(STUDIES / f"{name}.yaml")
    own = expected_jobs(study)
    # Counted by hand, so that a wrong formula shows; a new study needs no entry.
    assert own == JOBS.get(name, own)
    weights = {"weights": own["train"]}
    tables = {f"table_{d.replace('-', '_').replace('.', '_')}": 1 for d in study.run.decodings}
    once = dict.fromkeys(("prompts", "overlap", "values", "references", "report", "provenance"), 1)
    figures = {"figure": len(paths.figure_names(study))}
    evidence = {"evidence": count} if (count := len(paths.table_names(study))) else {}
    assert jobs == {**own, **weights, **tables, **once, **figures, **evidence}


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
ALIASES = "\n".join(
    f"k{i}: &k{i} [{', '.join([f'*k{i - 1}' if i else 'x'] * 10)}]" for i in range(9)
)


@pytest.mark.parametrize(
    "text",
    [
        MINE + "training: {steps: 8, steps: 16}\nrun: {seeds: [1]}\nrun: {seeds: [2]}\n",
        MINE + ALIASES,
        MINE + 'training: {stepps: 8}\n"\\e[31mred\\n": 1\nrun: {seeds: [0, "0", 2020-01-01]}\n',
        "name: mine\n",
    ],
    ids=["keys twice", "aliases", "several", "sections missing"],
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


def test_a_change_on_the_command_line_is_of_the_study(tmp_path):
    workspace = Workspace(tmp_path, {})
    workspace.write(MINE)
    assert workspace.jobs("--config", "run={seeds: [3, 4]}")["train"] == 8
    refused = workspace.snakemake("-n", "--config", "run={seeds: [3, '3']}")
    assert refused.returncode == 2
    assert "study: run.seeds: '3' is listed twice; remove one (--config)" in refused.stderr


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


def test_what_check_passes_passes_snakemake(tmp_path):
    accepted = accepted_studies()
    assert len(accepted) > 40
    # The last of them are those with the most in them; one with a checkpoint of the curve alone besides.
    curve = {"every": 40, "benchmarks": ["chain-2"], "decoding": "t1.0-p1.0"}
    with_curve = {**SMOKE, "evaluation": {**SMOKE["evaluation"], "curve": curve}}
    for raw in [*accepted[-60::15], with_curve]:
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
        assert f"--size {study.run.sizes[0]} --method {study.run.methods[0]} " in done.stdout
