"""Studies that come with the project expand into the jobs that they should, without running any."""

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from studies import studies
from world import STATES, World

from stapo.canonical import canonical
from stapo.publication.runs import is_earlier
from stapo.repository import ROOT, STUDIES
from stapo.stages import jobs_of
from stapo.study import StudyError, parse_study, read_study
from stapo.study.resolved import read_resolved, resolved_path, study_fingerprint, write_resolved

PROFILES = ROOT / "workflows" / "profiles"
# Trainings, base models and verifiers, checkpoints x decodings, and these times benchmarks; what comes after
# a plus is for curves.
JOBS = {
    "smoke": (4, 1, 10, 60),
    "paper": (12, 4, 150 + 288, 900 + 288),
    "paper-1.7b": (4, 2, 50 + 96, 300 + 96),
    "paper-rollouts": (12, 4, 150 + 288, 900 + 288),
    "paper-v3": (12, 4, 150 + 288, 900 + 288),
    "single-gpu": (4, 1, 26 + 12, 156 + 12),
    "ablation-v3": (12, 4, 150, 900),
    "ablation-v5": (11, 2, 134 + 264, 804 + 264),
    "dose-v5": (6, 2, 74 + 144, 444 + 144),
    "sensitivity-v3": (7, 2, 43, 43),
    "sensitivity-v5": (9, 2, 55, 55),
    "miniature": (30, 1, 80 + 72, 480 + 72),
    "miniature-1m": (30, 1, 80 + 72, 480 + 72),
    "miniature-ablation": (42, 1, 86, 516),
}


@pytest.mark.parametrize("name", sorted(path.stem for path in STUDIES.glob("*.yaml")))
def test_a_study_has_the_jobs_that_follow_from_its_file(name):
    of = jobs_of(read_study(STUDIES / f"{name}.yaml"))
    found = tuple(len(of.all(stage)) for stage in ("train", "base", "generate", "score"))
    assert found == JOBS[name]
    published = of.published()
    assert len(published) == len({path.lower() for path in published})


@pytest.mark.parametrize("name", ["smoke", "paper"])
def test_a_dry_run_makes_one_job_of_each(tmp_path, name):
    path = STUDIES / f"{name}.yaml"
    jobs, of = World(tmp_path, yaml.safe_load(path.read_text())).jobs(), jobs_of(read_study(path))
    assert jobs["train"] == jobs["weights"] == len(of.all("train"))
    for rule in ("generate", "score"):
        assert jobs[rule] + jobs.get(f"{rule}_curve", 0) == len(of.all("generate"))
    assert jobs["base_model"] + jobs.get("verifier_model", 0) == len(of.all("base"))
    once = {"prompts", "overlap", "evidence", "figures", "report", "provenance"}
    assert {rule: jobs[rule] for rule in once} == dict.fromkeys(once, 1)


@pytest.mark.parametrize("profile", sorted(p.name for p in PROFILES.iterdir()))
def test_every_profile_is_one(tmp_path, profile):
    # The last of two profiles counts.
    said = World(tmp_path, STATES).run("--workflow-profile", str(PROFILES / profile), "-n", "-p")
    gpus = {"smoke": 0, "workstation": 8, "slurm": 8}[profile]
    assert f"--gpus {gpus} 2>&1 | tee -i logs/states/runs" in said


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
    world = World(tmp_path, {})
    world.write(text)
    code, said = world.snakemake("-n")
    command = [sys.executable, "-m", "stapo", "check", "study.yaml"]
    check = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (code, check.returncode) == (2, 2)
    refused = [line for line in said.splitlines() if line.startswith("study: ")]
    assert refused == [line.replace("stapo: ", "study: ", 1) for line in check.stderr.splitlines()]
    assert refused
    assert "Traceback" not in said
    assert not (tmp_path / "results").exists()


def accepted_studies() -> list[dict[str, Any]]:
    """Generated studies that `check` passes, of few enough jobs for a dry run; always the same."""
    found: dict[str, dict[str, Any]] = {}

    @settings(
        derandomize=True, database=None, max_examples=120, suppress_health_check=list(HealthCheck)
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
    assert len(accepted) > 20
    # The last ones are those with the most in them.
    for number, raw in enumerate((accepted[-1], accepted[-10])):
        world, study = World(tmp_path / str(number), raw), parse_study(raw)
        # The commands name the study, which a dry run does not write.
        assert f"--study {resolved_path(study)} " in world.run("-n", "-p")
        assert not (world.path / "work").exists()
        write_resolved(study, tmp_path / "elsewhere")
        again = read_resolved(tmp_path / "elsewhere" / resolved_path(study))
        assert study_fingerprint(again) == study_fingerprint(study)


def test_fingerprints_of_trainings_are_those_of_finished_results():
    """A changed one would train anew what has been trained; raise a recipe where that is meant."""
    for job in jobs_of(read_study(STUDIES / "miniature.yaml")).all("train"):
        record = json.loads((ROOT / job.outputs[-1]).read_text())
        # 20-Entropy resolves ties in another way since then.
        ties = job.settings["method"].get("selection_recipe") == 2
        assert is_earlier(record, job) if ties else record["fingerprint"] == job.fingerprint
