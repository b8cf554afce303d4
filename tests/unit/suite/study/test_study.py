"""Studies: what they extend, their methods, checkpoints and cells, and what determines their trainings."""

import json
from contextlib import nullcontext
from pathlib import Path
from random import Random
from shutil import copy

import jsonschema
import pytest
import yaml
from hypothesis import given, strategies as st
from programs import missing

from stapo.core.methods import METHODS, s2t_arguments
from stapo.suite import domains
from stapo.suite.exhibits import figure_names
from stapo.suite.jobs import jobs_of
from stapo.suite.repository import STUDIES
from stapo.suite.study import (
    Checkpoint,
    StudyError,
    TrainingRun,
    merge,
    parse_study,
    read_study,
    study_schema,
)
from stapo.suite.study.functions import require_name
from stapo.suite.study.loader import load_yaml
from stapo.suite.study.method_settings import FORMER_NAMES, NAMED_PARTS
from stapo.suite.study.reading import (
    published_content,
    read_resolved,
    resolved_path,
    write_resolved,
)
from stapo.suite.study.schema import Interventions
from stapo.suite.study.study import families
from stapo.suite.tasks import benchmark_definitions

SHIPPED = sorted(STUDIES.rglob("*.yaml"))
CURVE = {"every": 20, "benchmarks": ["chain-3"], "decoding": "t0.7-p0.9"}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_study_is_read_and_published(path):
    if path.parent.name == "domains" and domains.missing():
        missing("make domains")
    study = read_study(path)
    assert study.name == path.stem
    published = published_content(study)  # Without the place of files of its own.
    assert published_content(parse_study(published)) == published
    jsonschema.validate(load_yaml(path).content, study_schema())


def test_mappings_are_merged_and_everything_else_is_replaced(tmp_path):
    assert merge({"a": {"b": 1, "c": [1, 2]}, "d": 1}, {"a": {"c": [3]}, "e": 2}) == {
        "a": {"b": 1, "c": [3]}, "d": 1, "e": 2,
    }  # fmt: skip
    # Of another kind; models may have the names of kinds.
    assert merge({"builder": "a"}, {"builder": None, "file": "b"}) == {"file": "b"}
    assert merge({"file": {"hub": "a"}, "m": {}}, {"path": {"hub": "b"}}).keys() == {
        "file",
        "m",
        "path",
    }
    data = {"builder": "tiny-arithmetic", "prompts": 64}
    found = parse_study({"name": "mine", "extends": "paper", "data": data})
    assert found.data.model_dump() == data  # Of another kind than the one below it.
    paper = read_study(STUDIES / "paper" / "paper.yaml")
    assert found.training == paper.training
    assert found.models == paper.models  # Of the catalogue.
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("extends: smoke\nname: mine\nrun: {seeds: [1, 2]}\n")
    second.write_text("run: {seeds: [3]}\ntraining: {steps: 8}\n")
    # Snakemake hands over what stands inside --config as text.
    study = read_study(first, second, changes={"training": {"steps": "16"}})
    assert (study.run.seeds, study.training.steps) == ([3], 16)
    # By the name of a file beside it or by its path; its own relative paths start at its folder.
    (below := tmp_path / "below").mkdir()
    (below / "q.jsonl").write_text('{"question": "1 + 1?", "answer": 2}\n')
    (below / "base.yaml").write_text("extends: smoke\nname: base\ndata: {file: q.jsonl}\n")
    for path, other in ((below / "c.yaml", "base"), (tmp_path / "c.yaml", "below/base.yaml")):
        path.write_text(f"extends: {other}\nname: c\n")
        assert Path(read_study(path).data.file) == below / "q.jsonl"


def test_a_variant_is_its_base_as_the_study_has_it(raw_study):
    """Whatever a study says of all methods, or of STAPO, its variants have too; own settings come last."""
    raw_study["all_methods"] = {"dual_clip": 10.0}
    raw_study["methods"] = {
        "stapo": {"tau_p": 0.01, "clip_high": 0.3, "training": {"group_size": 4}},
        "mine": {"base": "stapo", "quantile": 0.5},
        "mine-too": {"base": "mine", "tau_p": 0.02, "clip_high": 0.4},
    }
    found = parse_study(raw_study)
    assert all(found.method(name).dual_clip == 10.0 for name in (*METHODS, "mine", "mine-too"))
    heirs = ("stapo", "mine", "stapo-v2", "high-entropy", "random", "full-mask")
    assert {found.method(name).args["tau_p"] for name in heirs} == {0.01}
    assert {found.training_of(name).group_size for name in (*heirs, "mine-too")} == {4}
    assert found.training_of("grpo") == found.training
    too = found.method("mine-too")
    assert too.args == {"tau_p": 0.02, "quantile": 0.5, "scope": "candidates"}
    assert (too.clip_high, found.method("justrl").clip_high) == (0.4, 0.28)
    # What is STAPO's own in a built-in variant stays.
    v2 = {"tau_p": 0.01, "quantile": 0.80, "scope": "all"}
    assert found.method("stapo-v2").args == v2
    assert METHODS["stapo"].args["quantile"] == 0.75


def test_the_source_of_a_method_says_everything_that_was_changed(raw_study):
    raw_study["methods"] = {
        "old": {"base": "stapo-v2", "tau_p": 0.01},
        "tau": {"base": "stapo", "tau_p": 0.01, "training": {"group_size": 16}},
        "20-entropy": {"fraction": 0.1},
    }
    found = parse_study({**raw_study, "all_methods": {"dual_clip": 10.0}})
    assert found.method("old").source == "as STAPO (v2), but tau_p 0.01, dual_clip 10"
    source = "as STAPO (v4 and v5), but tau_p 0.01, dual_clip 10, group_size 16"
    assert found.method("tau").source == source
    assert found.method("20-entropy").source.endswith("; here fraction 0.1, dual_clip 10")
    assert found.method("cispo").source == METHODS["cispo"].source  # It takes no dual clip.
    # Of no revision of the paper, whatever it descends from.
    revisions = [found.method(name).revision for name in ("stapo", "stapo-v2", "tau")]
    assert revisions == ["v4 and v5", "v1 to v3", ""]


BOTH = {"grpo", "stapo"}
WIDE = {"wide": {"base": "stapo", "tau_p": 0.05}}
OWN = {"reward": "mine.py:score", "reward_sha256": "0" * 64}


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"methods": {"stapo": {"quantile": 0.5}}}, {"stapo"}),
        ({"methods": {"stapo": {"training": {"group_size": 16}}}}, {"stapo"}),
        ({"methods": {"stapo": {"title": "Ours"}}}, set()),
        ({"training": {"steps": 8}}, BOTH),
        ({"training": {"statistics": "current"}}, BOTH),
        ({"training": OWN}, BOTH),
        ({"training": {"overlong_buffer_tokens": 8}}, BOTH),
        ({"training": {"token_records_mb": 5, "checkpoint_every": 7}}, set()),
        ({"training": {"evaluate_every": 48}}, set()),
        ({"end_tokens": ["</answer>", "<|im_end|>"]}, BOTH),
        ({"end_tokens": ["<|im_end|>", "<|im_end|>"]}, set()),
        ({"evaluation": {"batch_size": 1, "curve": CURVE}, "name": "other"}, set()),
        ({"interventions": {"checkpoints": ["tiny/base"]}}, set()),
        ({"run": {"algorithms": "deterministic"}}, BOTH),
        ({"run": {"algorithms": "fastest"}}, set()),
    ],
)
def test_a_training_depends_on_what_determines_it(raw_study, changes, changed):
    before, after = parse_study(raw_study), parse_study(merge(raw_study, changes))
    for method in BOTH:
        first, second = (jobs_of(s).job("train", f"tiny/{method}/seed0") for s in (before, after))
        assert (first.fingerprint != second.fingerprint) == (method in changed)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"tau_p": 0.002, "quantile": 0.75, "scope": "candidates"}),
        ({"methods": {"stapo": {"tau_p": 0.001}}}, {"tau_p": 0.001}),
        # Another variant leaves the trainings of the baselines as they are.
        (
            {"methods": WIDE, "run": {"methods": ["justrl", "wide"]}, "compare": None},
            {"tau_p": 0.002},
        ),
        ({"run": {"methods": ["justrl", "stapo-v2"]}}, {"quantile": 0.8, "scope": "all"}),
    ],
)
def test_a_study_has_one_threshold_of_s2t_for_all_its_methods(raw_study, changes, expected):
    studies = parse_study(raw_study), parse_study(merge(raw_study, changes))
    found = s2t_arguments(studies[1].method("justrl"), studies[1].s2t())
    assert {key: found[key] for key in expected} == expected
    first, second = (jobs_of(study).job("train", "tiny/justrl/seed0") for study in studies)
    assert first.fingerprint == second.fingerprint
    # A threshold of one's own stays.
    own = studies[1].method("full-mask")
    assert s2t_arguments(own, studies[1].s2t())["tau_p"] == own.arguments_of("selection")["tau_p"]


def test_former_names_of_parts_are_read_with_a_warning_and_stay_recorded(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    parts = [
        (kind, name)
        for kind, names in NAMED_PARTS.items()
        for name in names
        if name in FORMER_NAMES
    ]
    recorded = []
    for words in ({name: name for _, name in parts}, FORMER_NAMES):
        assert not capsys.readouterr().err
        methods = {
            f"m{number}": {"base": "justrl", "title": name, kind: words[name]}
            for number, (kind, name) in enumerate(parts)
        }
        content = {"extends": "smoke", "name": "s", "methods": methods, "compare": None}
        Path("s.yaml").write_text(yaml.safe_dump({**content, "run": {"methods": [*methods]}}))
        jobs = [job for job in jobs_of(read_study(Path("s.yaml"))) if job.stage == "train"]
        recorded.append([job.settings["method"] for job in jobs])
    for (kind, name), settings in zip(parts, recorded[1], strict=True):
        assert settings[kind] == FORMER_NAMES[name]
    assert recorded[0] == recorded[1]
    warned = capsys.readouterr().err.splitlines()
    assert len(warned) == len(parts)
    number = parts.index(("surrogate", "sapo"))
    warning = f"warning: methods.m{number}.surrogate: soft_gate is called sapo now; write sapo ("
    assert warning in " ".join(warned)


def test_null_removes_what_is_inherited(tmp_path):
    removed = {"interventions": None, "evaluation": {"curve": None}, "benchmarks": {"aime25": None}}
    content = {"extends": "paper-1.7b", "name": "s", "training": {"instruction": None}, **removed}
    (tmp_path / "s.yaml").write_text(json.dumps({**content, "run": {"benchmarks": ["aime24"]}}))
    study = read_study(tmp_path / "s.yaml")
    assert study.interventions == Interventions()
    assert study.evaluation.curve is None
    assert "aime25" not in study.benchmarks
    assert study.training.instruction == ""
    # Of --config too, and what it adds does not bring back what the file removed.
    changes = {"methods": None, "compare": None, "interventions": {"repetitions": 4}}
    changed = read_study(tmp_path / "s.yaml", changes=changes)
    assert changed.methods == {}
    assert changed.interventions == Interventions(repetitions=4)
    with pytest.raises(StudyError, match=r"training.learning_rates: unknown key; did you mean"):
        read_study(tmp_path / "s.yaml", changes={"training": {"learning_rates": None}})
    with pytest.raises(StudyError, match=r"^training.steps: missing; add it \(--config\)"):
        read_study(tmp_path / "s.yaml", changes={"training": {"steps": None}})


def test_only_commits_and_checksums_are_silent(raw_study):
    raw_study["models"]["mine"] = {"hub": "a/b", "revision": "main"}
    raw_study["run"]["models"] = ["mine"]
    raw_study["data"] = {"hub": "a/b", "revision": "0" * 40}
    model, data = parse_study(raw_study).unpinned()
    assert model == "models.mine.revision: a/b at main is not reproducible; pin the commit"
    assert data.startswith("data.sha256: null: ")
    raw_study["models"]["mine"]["revision"] = "0" * 40
    raw_study["data"]["sha256"] = "0" * 64
    assert parse_study(raw_study).unpinned() == []
    olympics = {"hub": "a/b", "revision": "main", "split": "test", "rows": 2, "samples": 1}
    raw_study["benchmarks"] |= {"olympics": olympics, "aime26": {"samples": 32}}
    raw_study["run"]["benchmarks"] = ["olympics", "aime26", "aime24"]
    # Its revision is main, its rows are summed.
    raw_study["benchmarks"]["aime24"] = {"samples": 32}
    places = [line.partition(": no sha256")[0] for line in parse_study(raw_study).unpinned()]
    assert places == ["benchmarks.olympics", "task file of aime26"]


def test_a_checkpoint_of_the_curve_answers_its_benchmarks_under_its_decoding(raw_study):
    raw_study["training"]["evaluate_every"] = 40
    raw_study["run"] |= {"methods": ["stapo"], "benchmarks": ["chain-2", "chain-3"]}
    before = parse_study(raw_study)
    study = parse_study(merge(raw_study, {"evaluation": {"curve": CURVE}}))
    steps = {c: c.step for c in study.checkpoints() if c.step is not None}
    assert list(steps.values()) == study.kept_steps() == [20, 40, 60, 80]
    assert [step for c, step in steps.items() if study.is_full(c)] == [40, 80]
    own = TrainingRun("tiny", "stapo", 0)
    assert study.answered(Checkpoint(*own, 20), "t0.7-p0.9") == ["chain-3"]
    assert study.answered(Checkpoint(*own, 20), "t1.0-p1.0") == []
    for checkpoint in (Checkpoint("tiny"), Checkpoint(*own, 40), Checkpoint(*own)):
        assert study.answered(checkpoint, "t0.7-p0.9") == ["chain-2", "chain-3"]
    more = {*study.cells("t0.7-p0.9")} - {*before.cells("t0.7-p0.9")}
    assert more == {(Checkpoint(*own, step), "chain-3") for step in (20, 60)}
    assert list(study.table_cells("t0.7-p0.9")) == list(before.cells("t0.7-p0.9"))


NUMBERS = st.integers(0, 2**31)
NAMES = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1)


@given(NAMES, NAMES, NUMBERS, st.none() | NUMBERS)
def test_the_name_of_a_checkpoint_leads_back_to_it_and_no_other_name_to_any(
    size, method, seed, step
):
    checkpoint = Checkpoint(size, method, seed, step)
    assert Checkpoint.parse(str(checkpoint)) == checkpoint
    assert Checkpoint.parse(str(Checkpoint(size))) == Checkpoint(size)
    for name in ("", size, f"{size}/{method}", f"{size}/base\n", f"{size}/{method}/seed0{seed}"):
        with pytest.raises(ValueError, match="no name of a checkpoint"):
            Checkpoint.parse(name)


def test_families_differ_in_one_argument_and_in_nothing_else(raw_study):
    ablation = families(read_study(STUDIES / "paper" / "ablation-v5.yaml"))
    assert {family.argument for family in ablation} == {"quantile"}
    assert [family.title for family in ablation] == ["STAPO", "High-entropy mask", "Random mask"]
    assert ablation[0].members == {0.25: "stapo-q25", 0.5: "stapo-q50", 0.75: "stapo"}
    for other in ({}, {"clip_high": 0.3}, {"tau_p": 0.01}, {"training": {"group_size": 16}}):
        half = {"half": {"base": "stapo", "quantile": 0.5, **other}}
        run = {"methods": ["stapo", "half"]}
        study = parse_study(merge(raw_study, {"methods": half, "run": run}))
        assert len(families(study)) == (0 if other else 1)
        assert ("ablation" in figure_names(study)) == (not other)


OWN_FILES = """
extends: smoke
name: own
training: {reward: "code.py:reward"}
data: {file: p.jsonl}
methods: {rare: {base: justrl, selection: "code.py:rare", selection_args: {tau_p: 0.01, least: 2}}}
benchmarks: {sums: {file: q.jsonl, samples: 2, answer: "code.py:read"}}
run: {methods: [justrl, rare], benchmarks: [sums]}
compare: {target: rare}
"""
CODE = """
def rare(logps, entropies, advantages, mask, tau_p=0.002, least=1): ...
def reward(completions, **_): ...
def read(response): ...
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A study that names files of its own, with these files, as the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(OWN_FILES)
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "p.jsonl").write_text('{"question": "1+1=?", "answer": 2}\n')
    (tmp_path / "q.jsonl").write_text('{"question": "2+2=?", "answer": 4}\n')
    return tmp_path


def test_a_published_study_has_names_and_checksums_of_files_and_no_paths(folder):
    study = read_study(folder / "own.yaml")
    assert study.training.reward == f"{folder}/code.py:reward"
    published = published_content(study)
    assert str(folder) not in json.dumps(published)
    assert published["methods"]["rare"]["selection"] == "code.py:rare"
    assert published["benchmarks"]["sums"]["answer"] == "code.py:read"
    source = "as JustRL, but least 2, tau_p 0.01, selection code.py:rare"
    assert study.method("rare").source == source
    before, after = jobs_of(study), jobs_of(parse_study(published))
    assert [job.fingerprint for job in before] == [job.fingerprint for job in after]


def test_answers_are_read_as_the_reward_or_the_task_file_or_the_benchmark_says(folder, monkeypatch):
    (folder / "s.yaml").write_text("extends: smoke\nname: s\n")

    def read(**changes):
        benchmarks = {"own": {"file": "p.jsonl", "samples": 2}, **changes.pop("benchmarks", {})}
        study = read_study(folder / "s.yaml", changes={"benchmarks": benchmarks, **changes})
        return [study.task(name)["metadata"].get("answer") for name in ("own", "chain-2")]

    plain, after = read(), {"after": "####"}
    assert plain == [None, None]
    assert read(training={"reward": after}) == [after, None]
    both = read(training={"reward": "last_number"}, benchmarks={"chain-2": {"answer": after}})
    assert both == ["last_number", after]
    assert read(training={"reward": "code.py:reward"}) == plain
    known = benchmark_definitions()
    told = {**known["chain-2"]["metadata"], "answer": "last_number"}
    changed = {**known, "chain-2": {**known["chain-2"], "metadata": told}}
    monkeypatch.setattr("stapo.suite.study.study.benchmark_definitions", lambda: changed)
    assert read() == [None, "last_number"]
    assert read(benchmarks={"chain-2": {"answer": "boxed"}}) == plain


def permuted(value, rng):
    """Return the same with the keys of all mappings in another order."""
    if isinstance(value, dict):
        return {key: permuted(value[key], rng) for key in rng.sample([*value], len(value))}
    return [permuted(one, rng) for one in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_no_fingerprint_depends_on_the_order_of_keys(folder):
    """Otherwise `status`, which reads another text than Snakemake, would contradict it."""
    for code in STUDIES.rglob("*.py"):
        copy(code, folder)
    rng = Random(0)
    for text in (
        OWN_FILES,
        *(path.read_text() for path in SHIPPED if path.parent.name != "domains"),
    ):
        found = []
        for content in (yaml.safe_load(text), permuted(yaml.safe_load(text), rng)):
            Path("study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
            study = read_study(Path("study.yaml"))
            write_resolved(study)
            again = read_resolved(Path(resolved_path(study)))
            for form in (study, again):
                sources = [form.method(name).source for name in form.run.methods]
                found.append([*sources, *(job.fingerprint for job in jobs_of(form))])
        assert all(one == found[0] for one in found)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("def f(): pass", None),
        ("if True:\n    f = print", None),
        ("from os import path as f", None),
        ("from os.path import *", None),
        ("class K:\n    def f(self): pass", "code.py: no function f at its top level"),
        ("f(1)", "code.py: no function f at its top level"),
        ("def f(:", "code.py, line 1: not Python: invalid syntax"),
    ],
)
def test_a_function_is_looked_for_before_anything_runs(tmp_path, monkeypatch, code, fault):
    monkeypatch.chdir(tmp_path)
    Path("code.py").write_text(code)
    with nullcontext() if fault is None else pytest.raises(StudyError, match=fault):
        require_name("code.py:f")
