"""Every study that comes with the project expands into the jobs that it should, without running any."""

import pytest
from conftest import Workspace

from stapo.study import ROOT, STUDIES, read_study

PROFILES = ROOT / "workflows" / "profiles"
JOBS = {
    # trainings, base models, checkpoints x decodings, times benchmarks
    "smoke": {"train": 4, "base_model": 1, "generate": 10, "score": 60},
    "paper": {"train": 12, "base_model": 3, "generate": 150, "score": 900, "verifier_model": 1},
    "paper-1.7b": {"train": 4, "base_model": 1, "generate": 50, "score": 300, "verifier_model": 1},
    "single-gpu": {"train": 4, "base_model": 1, "generate": 26, "score": 156},
    "ablation": {"train": 11, "base_model": 1, "generate": 134, "score": 804, "verifier_model": 1},
    "sensitivity": {"train": 9, "base_model": 1, "generate": 55, "score": 55, "verifier_model": 1},
}


def test_no_study_is_forgotten():
    assert {path.stem for path in STUDIES.glob("*.yaml")} == JOBS.keys()


@pytest.mark.parametrize("name", JOBS)
def test_a_dry_run_makes_the_jobs_of_the_study(tmp_path, name):
    workspace = Workspace(tmp_path, {})
    workspace.write((STUDIES / f"{name}.yaml").read_text())
    jobs = workspace.jobs()
    study = read_study(STUDIES / f"{name}.yaml")
    weights = {"weights": JOBS[name]["train"]}
    tables = {f"table_{d.replace('-', '_').replace('.', '_')}": 1 for d in study.run.decodings}
    once = {"prompts": 1, "overlap": 1, "report": 1, "provenance": 1}
    figures = {"figure": 6 if study.kept_steps() else 5}
    assert jobs == {**JOBS[name], **weights, **tables, **once, **figures}


@pytest.mark.parametrize("profile", sorted(p.name for p in PROFILES.iterdir()))
def test_every_profile_is_one(tmp_path, profile):
    workspace = Workspace(tmp_path, {})
    workspace.write((STUDIES / "paper-1.7b.yaml").read_text())
    # The last of two profiles counts.
    done = workspace.snakemake("--workflow-profile", str(PROFILES / profile), "-n", "-p")
    assert done.returncode == 0, done.stdout + done.stderr
    gpus = {"smoke": 1, "workstation": 8, "slurm": 8}[profile]
    assert f"--gpus {gpus} --nodes 1 2>&1 | tee -i logs/paper-1.7b/runs" in done.stdout
