"""Studies that come with the project expand into the jobs that they should, without running any."""

import pytest
import yaml
from programs import python
from world import STATES, World

from stapo.suite.jobs import jobs_of
from stapo.suite.repository import ROOT
from stapo.suite.study import merge, read_study
from stapo.suite.study.reading import shipped

PROFILES = ROOT / "workflows" / "profiles"


@pytest.mark.parametrize("name", ["smoke", "paper"])
def test_a_dry_run_makes_one_job_of_each(tmp_path, name):
    path = shipped(name)
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
    assert f"--gpus {gpus} --nodes 1 2>&1 | tee -i logs/states/runs" in said


def test_a_training_larger_than_the_machine_runs_alone_on_all_cores_and_is_warned_of(tmp_path):
    study = merge(STATES, {"training": {"prompts_per_batch": 65_536, "group_size": 1024}})
    world = World(tmp_path, study, stub=True)
    said = world.run("-p")
    assert "warning: train tiny: a job needs about " in said
    assert "OMP_NUM_THREADS=2 " in said.partition(" run train ")[0].rpartition("\n")[2]
    assert "OMP_NUM_THREADS=1 " in said.partition(" run generate ")[0].rpartition("\n")[2]


def test_check_and_snakemake_refuse_the_same_with_the_same_lines(tmp_path):
    world = World(tmp_path, {})
    world.write(
        "extends: smoke\nname: mine\ntraining: {stepps: 8}\n"
        '"\\e[31mred\\n": 1\nrun: {seeds: [0, "0", 2020-01-01]}\n'
    )
    code, said = world.snakemake("-n")
    check = python("-m", "stapo", "check", "study.yaml", at=tmp_path, code=2)
    assert code == 2
    refused = [line for line in said.splitlines() if line.startswith("study: ")]
    assert refused == [line.replace("stapo: ", "study: ", 1) for line in check.stderr.splitlines()]
    assert refused
    assert "Traceback" not in said
    assert not (tmp_path / "results").exists()
