"""Token selections and rewards of one's own: named by the study, read as text, run by jobs alone."""

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

from stapo.study import Study, StudyError, TrainingRun, identity, parse_study, read_study
from stapo.study.reading import published_content
from stapo.study.resolved import read_resolved, resolved_path, write_resolved
from stapo.training.own_functions import OwnFunctionError
from stapo.training.rewards import own_reward, reward_fault
from stapo.training.update import select

CODE = """
import sys
sys.stapo_own_code_ran = True

def silence_rare(logps, entropies, advantages, mask, tau_p=0.002, kind="all"):
    return mask & ~(mask & (logps.exp() < tau_p))

def draw(logps, entropies, advantages, mask, share=0.5, *, seed=0):
    drawn = torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed))
    return mask & (drawn < share)

def score(completions, answer, **columns):
    return [float(len(one)) for one in completions]

def ends(completions, answer, **columns):
    sys.exit(0)

def widened(logps, entropies, advantages, mask):
    return torch.ones_like(mask)

def number(logps, entropies, advantages, mask):
    return 1

def changing(logps, entropies, advantages, mask):
    keep = mask.clone()
    for table in (logps, entropies, advantages, mask):
        table.zero_()
    return keep

def no_default(logps, entropies, advantages, mask, tau_p): ...
def listed(logps, entropies, advantages, mask, tau_p=[1]): ...
def short(logps): ...
import torch
"""
STUDY = """
extends: smoke
name: mine
methods:
  rare: {base: justrl, selection: "code/rare.py:silence_rare", selection_args: {tau_p: 0.2}}
  rarer: {base: rare, selection_args: {tau_p: 0.1}, title: Rarer}
run: {methods: [justrl, rare, rarer]}
compare: {target: [rare, rarer], baselines: [justrl]}
"""
SHA = "a" * 64
RUN = TrainingRun("tiny", "rare", 0)
LOGPS = torch.tensor([[0.15, 0.05, 0.9, 0.01]]).log()
MASK = torch.tensor([[True, True, True, False]])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "rare.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(folder: Path, old: str = "", new: str = "") -> Study:
    assert old in STUDY
    (folder / "mine.yaml").write_text(STUDY.replace(old, new) if old else STUDY)
    return read_study(Path("mine.yaml"))


def kept(study: Study, name: str, seed: int = 0) -> list[list[bool]]:
    tables = LOGPS, torch.ones_like(LOGPS), torch.tensor([1.0]), MASK
    found: list[list[bool]] = select(study.method(name), *tables, seed).tolist()
    return found


def lines(folder: Path, old: str, new: str) -> str:
    with pytest.raises(StudyError) as error:
        read(folder, old, new)
    return "\n".join(error.value.errors)


def test_a_selection_beside_the_study_selects_with_its_arguments(folder, tmp_path, monkeypatch):
    study = read(folder)
    write_resolved(study, tmp_path)
    monkeypatch.chdir("/")
    job = read_resolved(tmp_path / resolved_path(study))
    assert kept(job, "rare") == [[False, False, True, False]]
    assert kept(job, "rarer") == [[True, False, True, False]]
    assert job.method("rarer").arguments == {"tau_p": 0.1, "kind": "all"}
    assert "selection code/rare.py:silence_rare" in job.method("rare").source
    assert job.compared() == (["rare", "rarer"], ["justrl"])


def test_reading_planning_and_publishing_run_none_of_it(folder, monkeypatch):
    import sys

    monkeypatch.delattr(sys, "stapo_own_code_ran", raising=False)
    study = read(folder, "run:", "training: {reward: 'code/rare.py:score'}\nrun:")
    identity.train_fingerprint(study, RUN)
    assert reward_fault(study.job_training("rare")) is None
    assert not hasattr(sys, "stapo_own_code_ran")


def test_its_checksum_is_in_the_fingerprint_and_its_place_is_not(folder):
    study = read(folder)
    fingerprint = identity.train_fingerprint(study, RUN)
    (folder / "moved.py").write_text(CODE)
    moved = read(folder, "code/rare.py", "moved.py")
    assert identity.train_fingerprint(moved, RUN) == fingerprint
    published = parse_study(published_content(study))
    assert identity.train_fingerprint(published, RUN) == fingerprint
    assert str(folder) not in json.dumps(published_content(study))
    assert str(folder) not in json.dumps(identity.train_config(study, RUN))
    (folder / "code" / "rare.py").write_text(CODE + "\n")
    assert identity.train_fingerprint(read(folder), RUN) != fingerprint
    justrl = TrainingRun("tiny", "justrl", 0)
    assert identity.train_fingerprint(read(folder), justrl) == identity.train_fingerprint(
        study, justrl
    )
    with pytest.raises(StudyError, match="changed since the study was read"):
        kept(study, "rare")


def test_what_it_declares_is_only_its_arguments(folder):
    method = read(folder).method("rare")
    assert method.reads == "all"
    assert (method.spec.has_threshold, method.spec.draws, method.spec.is_known) == (False,) * 3


def test_one_that_draws_gets_the_seed_of_the_step(folder):
    draw = """  rare: {base: justrl, selection: "code/rare.py:draw", selection_args: {share: 0.6}}
run: {methods: [rare]}
"""
    (folder / "mine.yaml").write_text("extends: smoke\nname: mine\nmethods:\n" + draw)
    study = read_study(Path("mine.yaml"))
    assert study.method("rare").arguments == {"share": 0.6}
    results = {str(kept(study, "rare", seed)) for seed in (1, 2, 3, 4)}
    assert len(results) > 1
    assert kept(study, "rare", 1) == kept(study, "rare", 1)


def with_selection(function: str) -> str:
    """Return the study with a function without settings."""
    return (
        STUDY.replace("silence_rare", function).replace("selection_args: {tau_p: 0.2}", "")
        .replace("selection_args: {tau_p: 0.1}, ", "")
    )  # fmt: skip


def test_one_that_changes_its_arguments_changes_copies(folder):
    (folder / "mine.yaml").write_text(with_selection("changing"))
    method = read_study(folder / "mine.yaml").method("rare")
    # `select` rounds the entropies into a new table; the other three are the trainer's own.
    tables = LOGPS.clone(), torch.ones_like(LOGPS), torch.tensor([1.0]), MASK.clone()
    before = [table.clone() for table in tables]
    assert torch.equal(select(method, *tables, seed=0), MASK)
    assert all(map(torch.equal, tables, before))


@pytest.mark.parametrize(
    ("function", "error"), [("widened", "outside mask"), ("number", "expected bool of shape")]
)
def test_a_result_that_is_no_selection_is_refused(folder, function, error):
    (folder / "mine.yaml").write_text(with_selection(function))
    with pytest.raises(ValueError, match=error):
        kept(read_study(folder / "mine.yaml"), "rare")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("rare.py:", "absent.py:", "methods.rare.selection: code/absent.py: No such file"),
        ("silence_rare", "absent", "code/rare.py: no function absent at its top level"),
        ("silence_rare", "short", "short is no token selection, which begins with"),
        ("silence_rare", "no_default", "argument tau_p of no_default needs a default"),
        ("silence_rare", "listed", "argument tau_p of listed needs a default"),
        ("code/rare.py:silence_rare", "none_of_tests:f", "none_of_tests:f: not found; install its package"),
        ("code/rare.py:silence_rare", "rare", "expected FILE.py:function, package.module:function"),
        ("{tau_p: 0.2}", "{tau_q: 0.2}", "has no such argument; it takes tau_p, kind"),
        ("{tau_p: 0.1}", "{tau_q: 0.1}", "has no such argument; it takes tau_p, kind"),
        ("{tau_p: 0.2}", "{tau_p: many}", "selection_args.tau_p: expected a number, found 'many'"),
        ("{tau_p: 0.2}", "{kind: 3}", "selection_args.kind: expected a text, found 3"),
        ("{tau_p: 0.2}", "{tau_p: 2}", "is the probability of rare tokens; choose 0 to 1"),
        ("selection_args: {tau_p: 0.1}", "tau_p: 0.1", "methods.rarer.tau_p: its selection is your own"),
        ("base: rare,", "base: stapo,", "methods.rarer.selection_args: only for a `selection` of your own"),
        ("{base: rare, sel", f"{{base: rare, selection_sha256: {SHA}, sel", "only for a method with"),
        ("selection_args: {tau_p: 0.2}", f"selection_sha256: {SHA}", "expected aaa"),
        ("base: justrl, sel", "base: nope, sel", "methods.rare.base: unknown name 'nope'"),
        ("run:", "  stapo: {selection: 'code/rare.py:silence_rare'}\nrun:", "needs a name of its own"),
        ("run:", "interventions: {checkpoints: [tiny/base], method: rare}\nrun:", "rare silences no cand"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_line(folder, old, new, line):
    assert line in lines(folder, old, new)


def test_a_study_that_was_not_read_from_its_file_needs_the_checksum(folder):
    raw = published_content(read(folder))
    del raw["methods"]["rare"]["selection_sha256"]
    with pytest.raises(StudyError, match="was not read; selection_sha256 missing"):
        parse_study(raw)


def test_a_package_may_declare_selections_and_rewards_by_name(folder, monkeypatch):
    (folder / "rare_of_tests.py").write_text(CODE)
    monkeypatch.syspath_prepend(folder)
    points = {
        ("stapo.selections", "silence-rare"): "rare_of_tests:silence_rare",
        ("stapo.rewards", "length"): "rare_of_tests:score",
    }

    def entry_points(group: str, name: str) -> list[metadata.EntryPoint]:
        value = points.get((group, name))
        return [metadata.EntryPoint(name, value, group)] if value else []

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    study = read(folder, "code/rare.py:silence_rare", "silence-rare")
    assert study.method("rare").selection == "rare_of_tests:silence_rare"
    assert kept(study, "rare") == [[False, False, True, False]]
    rewarded = read(folder, "run:", "training: {reward: length}\nrun:").training
    assert rewarded.reward == "rare_of_tests:score"
    assert len(rewarded.reward_sha256) == 64


def test_a_reward_beside_the_study_needs_no_package(folder, monkeypatch):
    study = read(folder, "run:", "training: {reward: 'code/rare.py:score'}\nrun:")
    monkeypatch.chdir("/")
    function = own_reward(study.job_training("rare"))
    assert function(completions=["ab"], answer=["a"]) == [2.0]
    config = identity.train_config(study, RUN)["training"]
    assert config["reward"] == "score"
    (folder / "code" / "rare.py").write_text(CODE + "\n")
    assert "if this file is intended" in reward_fault(study.job_training("rare"))
    monkeypatch.chdir(folder)
    changed = read(folder, "run:", "training: {reward: 'code/rare.py:score'}\nrun:")
    assert identity.train_fingerprint(changed, RUN) != identity.train_fingerprint(study, RUN)
    (folder / "code" / "rare.py").unlink()
    assert "No such file" in reward_fault(study.job_training("rare"))


def test_a_reward_that_ends_the_process_is_an_error(folder):
    study = read(folder, "run:", "training: {reward: 'code/rare.py:ends'}\nrun:")
    with pytest.raises(OwnFunctionError, match=r"line \d+: SystemExit: 0; fix the function"):
        own_reward(study.job_training("rare"))(completions=["ab"], answer=["a"])


def test_the_order_of_arguments_changes_nothing(folder):
    either = read(folder, "{tau_p: 0.2}", "{tau_p: 0.2, kind: rare}").method("rare")
    other = read(folder, "{tau_p: 0.2}", "{kind: rare, tau_p: 0.2}")
    assert other.method("rare") == either
    assert parse_study(json.loads(json.dumps(published_content(other), sort_keys=True))).method(
        "rare"
    ).source == (either.source)


def test_a_reward_in_a_file_that_is_not_there_is_one_line(folder):
    with pytest.raises(StudyError) as error:
        read(folder, "run:", "training: {reward: 'code/none.py:score'}\nrun:")
    (only,) = error.value.errors
    assert only.startswith("training.reward: ")
    assert "none.py: No such file" in only
