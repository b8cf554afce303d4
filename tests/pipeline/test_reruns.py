"""An edit reruns what it concerns and nothing else."""

import shutil
from pathlib import Path

import pytest
from world import STATES, World, counted

from stapo.core.checksums import SUMS
from stapo.suite.jobs import jobs_of
from stapo.suite.study import merge

OWN_ARGS = {"tau_p": 0.003, "quantile": 0.5}
OWN = {"base": "stapo", "selection": "mine.py:mine", "selection_args": OWN_ARGS}
RUN = {"methods": ["justrl", "mine"], "benchmarks": ["chain-2", "chain-3"]}
RUN["decodings"] = ["t1.0-p1.0", "t0.7-p0.9"]
WHOLE = merge(STATES, {"name": "whole", "run": RUN, "methods": {"mine": OWN}})
MINE = """
def mine(logps, entropies, advantages, mask, tau_p=0.002, quantile=0.75):
    return mask
"""
SHOWN = {"evidence": 1, "figures": 1, "report": 1, "provenance": 1}
TABLES = {"table_t1_0_p1_0": 1, "table_t0_7_p0_9": 1}
ONE_METHOD = {"train": 1, "weights": 1, "generate": 2, "score": 2, **TABLES, **SHOWN}
BOTH_METHODS = {"train": 2, "weights": 2, "generate": 4, "score": 4, **TABLES, **SHOWN}
INTERVENE = {"checkpoints": ["tiny/base", "tiny/justrl/seed0"]}
DECODING = {"decodings": {"t0.7-p0.9": {"temperature": 0.8, "top_p": 0.9}}}


def directory(path: Path) -> World:
    """Return a directory for the study with the selection of its own."""
    world = World(path, WHOLE, stub=True)
    (path / "mine.py").write_text(MINE)
    return world


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = directory(tmp_path_factory.mktemp("whole"))
    said = world.run("-p")
    assert "study: whole is finished" in said
    assert "results/whole/report.html" in said
    return world


@pytest.fixture
def edited(whole: World) -> World:
    """The finished study, whose file is edited for dry runs."""
    return World(whole.path, WHOLE, stub=True)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"training": {"checkpoint_every": 5}}, {}),
        ({"methods": {"mine": {"selection_args": {"quantile": 0.9}}}}, ONE_METHOD),
        ({"methods": {"mine": {"title": "Mine"}}}, {**TABLES, **SHOWN}),
        ({"methods": {"more": {"base": "grpo", "dual_clip": 3.0}},
          "run": {"methods": ["justrl", "mine", "more"]}}, ONE_METHOD),
        (DECODING, {"generate": 3, "score": 3, "table_t0_7_p0_9": 1, **SHOWN}),
        ({"benchmarks": {"chain-4": {"samples": 2}},
          "run": {"benchmarks": ["chain-2", "chain-3", "chain-4"]}},
         {"overlap": 1, "generate": 6, "score": 6, **TABLES, **SHOWN}),
        ({"interventions": INTERVENE}, {"intervene": 2, **SHOWN}),
        # Weights that are kept anew come from training again, so that all that they answer may change.
        ({"training": {"evaluate_every": 4}}, {**BOTH_METHODS, "generate": 8, "score": 8}),
    ],
    ids=["resuming", "method", "title", "variant", "decoding", "benchmark", "interventions",
         "steps kept"],
)  # fmt: skip
def test_an_edit_reruns_what_depends_on_it(edited, change, expected):
    edited.change(change)
    assert edited.jobs() == expected


def test_a_study_that_differs_in_one_method_shares_the_rest(whole):
    """Base model and trainings of equal settings are published again, not made again."""
    tau_p = {"selection_args": {"tau_p": 0.004}}
    study = merge(WHOLE, {"name": "other", "methods": {"mine": tau_p}})
    other = World(whole.path, study, stub=True)
    weights = "results/{study}/runs/tiny/{method}/seed0/model"
    targets = [
        f"{weights}/{SUMS}".format(study="other", method=method) for method in ("justrl", "mine")
    ]
    assert counted(other.run(*targets, "-p"))["train"] == 2
    for method, same in (("justrl", True), ("mine", False)):
        old, new = (
            whole.path / weights.format(study=study, method=method) / "model.safetensors"
            for study in ("whole", "other")
        )
        assert (old.stat().st_ino == new.stat().st_ino) == same


@pytest.fixture
def copied(whole: World, tmp_path: Path) -> World:
    """The results of the finished study alone, copied in any order."""
    world = directory(tmp_path / "copied")
    shutil.copytree(whole.path / "results/whole", world.path / "results/whole")
    world.other_times(0)
    return world


def test_results_are_not_made_again_because_of_times(whole, copied):
    """Without `work` and `.snakemake`, which stay behind, and in the place where they were made."""
    before = read_all(copied.path / "results")
    assert "Nothing to be done" in copied.run("-n")
    assert read_all(copied.path / "results") == before
    whole.other_times(1)
    assert "Nothing to be done" in World(whole.path, WHOLE, stub=True).run("-n")


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"training": {"learning_rate": 1e-4}}, BOTH_METHODS),
     ({"methods": {"mine": {"title": "Mine"}}}, {**TABLES, **SHOWN})],
    ids=["training", "title"],
)  # fmt: skip
def test_copied_results_of_other_settings_are_made_again(copied, change, expected):
    copied.change(change)
    assert copied.jobs() == expected


def test_copied_prompts_of_other_settings_are_not_trained_on(copied):
    """Nothing is read to make them, so that no time says that they are to be made again."""
    copied.change({"data": {"prompts": 512}})
    copied.write()
    code, said = copied.snakemake()
    assert code == 1
    assert "data/prompts.jsonl: made with other settings; make it again: snakemake --force" in said
    said = copied.run("--forcerun", "results/whole/data/prompts.jsonl")
    assert "is finished" in said


def test_what_is_lost_of_a_copied_folder_is_made_again_and_nothing_else(copied):
    """The base model's weights give the same trainings, and a training is not started for lost responses."""
    results = copied.path / "results/whole"
    shutil.rmtree(results / "models/tiny/base")
    (results / "completions/tiny/base/t1.0-p1.0/chain-2.jsonl").unlink()
    metrics = results / "runs/tiny/justrl/seed0/metrics.jsonl"
    before = metrics.stat().st_ino
    copied.run()
    assert not (copied.path / "work/train").exists()
    assert metrics.stat().st_ino == before


@pytest.mark.parametrize(
    ("stage", "change"),
    [("train", {"training": {"learning_rate": 1e-4}}), ("generate", {"evaluation": {"seed": 7}})],
    ids=["train", "generate"],
)
def test_results_stay_until_their_successors_are_complete(copied, stage, change):
    """And are not taken for these, after a job that failed."""
    copied.run("-n")
    before = published(copied)
    copied.change(change)
    copied.write()
    (copied.path / "FAIL").write_text(stage)
    code, said = copied.snakemake()
    assert code == 1
    after = published(copied)
    assert {path: after.get(path) for path in before} == before, said
    (copied.path / "FAIL").unlink()
    copied.run()
    assert copied.jobs() == {}
    for job in jobs_of(copied.parsed()).all("generate"):
        assert all(job.fingerprint in (copied.path / path).read_text() for path in job.outputs)


def test_removed_weights_change_nothing_and_hide_nothing(copied):
    """Of a copied folder, in which nothing else says what responses were made from."""
    for at in ("models/tiny/base", "runs/tiny/justrl/seed0/model", "runs/tiny/mine/seed0/model"):
        shutil.rmtree(copied.path / "results/whole" / at)
    assert copied.jobs() == {}
    copied.change({"evaluation": {"seed": 7}})
    copied.write()
    code, said = copied.snakemake()
    assert code == 1
    assert "t1.0-p1.0/chain-2.jsonl: made with other settings; make it again: snakemake" in said


def test_results_without_a_record_are_judged_by_what_they_say(copied):
    """As in git, or as versions before records left them."""
    shutil.rmtree(copied.path / "results/whole/.jobs")
    copied.run("--touch")
    assert copied.jobs() == {}
    copied.change({"training": {"learning_rate": 1e-4}})
    assert copied.jobs()["train"] == 2


def published(world: World) -> dict[str, bytes]:
    """Return the content of the results, without the records of jobs."""
    found = read_all(world.path / "results")
    return {path: content for path, content in found.items() if ".jobs" not in path}


def read_all(path: Path) -> dict[str, bytes]:
    """Return the content of the files below a directory."""
    files = [one for one in sorted(path.rglob("*")) if one.is_file()]
    return {str(one.relative_to(path)): one.read_bytes() for one in files}


def test_a_job_on_a_cluster_has_the_study_that_it_was_made_for(edited):
    """Snakemake starts again there, and the study file may have changed since."""
    named = sorted((edited.path / "work/whole/studies").iterdir())[0].relative_to(edited.path)
    edited.change({"training": {"learning_rate": 1e-4}})
    edited.write()
    target = "results/whole/runs/tiny/justrl/seed0/metrics.jsonl"
    _, said = edited.snakemake(
        target, "-n", "-p", "--force", "--nolock", "--no-hooks", "--mode", "remote",
        STAPO_STUDY=str(named),
    )  # fmt: skip
    assert f"run train tiny/justrl/seed0 --study {named} " in said, said
