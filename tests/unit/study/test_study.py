"""Schema, errors, expansion and fingerprints of studies."""

import json
import re
import subprocess
import sys

import jsonschema
import pytest
import yaml
from huggingface_hub.utils import HFValidationError, validate_repo_id

from stapo.canonical import canonical, fingerprint
from stapo.methods import METHODS
from stapo.repository import ROOT
from stapo.study import (
    Checkpoint,
    StudyError,
    TrainingRun,
    identity,
    merge,
    parse_study,
    read_study,
    study_schema,
)
from stapo.study.loader import load_yaml
from stapo.tasks import benchmark_definitions

STUDIES_DIRECTORY = ROOT / "workflows" / "studies"
STUDIES = sorted(STUDIES_DIRECTORY.glob("*.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_study_loads(path):
    assert read_study(path).name == path.stem


def test_scientific_notation_without_a_point_is_a_number(raw_study):
    raw_study["training"]["learning_rate"] = yaml.safe_load("1e-6")  # YAML reads a string
    assert parse_study(raw_study).training.learning_rate == 1e-6


def test_fingerprints_ignore_order_and_what_does_not_matter(raw_study):
    study = parse_study(raw_study)
    turned = parse_study({key: raw_study[key] for key in reversed(raw_study)})
    assert canonical(turned.model_dump()) == canonical(study.model_dump())
    raw_study["training"]["keep_checkpoints"] = 9
    raw_study["name"] = "other"
    raw_study["methods"] = {"stapo": {"title": "Ours"}}
    other = parse_study(raw_study)
    assert identity.train_config(other, TrainingRun("tiny", "stapo", 0)) == identity.train_config(
        study, TrainingRun("tiny", "stapo", 0)
    )


@pytest.mark.parametrize(
    ("section", "key", "value", "changed"),
    [
        ("methods", "stapo", {"quantile": 0.5}, {"stapo"}),
        ("training", "steps", 8, {"grpo", "stapo"}),
        ("training", "statistics", "current", {"stapo"}),
        ("data", "seed", 1, {"grpo", "stapo"}),
        ("evaluation", "batch_size", 1, set()),
    ],
    ids=["one method", "training", "statistics", "data", "evaluation"],
)
def test_a_training_depends_on_what_determines_it(raw_study, section, key, value, changed):
    before = parse_study(raw_study)
    raw_study.setdefault(section, {})[key] = value
    after = parse_study(raw_study)
    for method in ("grpo", "stapo"):
        configs = [
            identity.train_config(study, TrainingRun("tiny", method, 0))
            for study in (before, after)
        ]
        assert (fingerprint(configs[0]) != fingerprint(configs[1])) == (method in changed)


def test_scores_carry_everything_above_them(raw_study):
    before = parse_study(raw_study)
    raw_study["methods"] = {"stapo": {"quantile": 0.5}}
    raw_study["benchmarks"]["chain-2"]["samples"] = 16
    after = parse_study(raw_study)
    cells = [
        (checkpoint, benchmark)
        for checkpoint in (Checkpoint("tiny", "stapo", 0), Checkpoint("tiny", "grpo", 0))
        for benchmark in ("chain-2", "chain-3")
    ]
    changed = [
        identity.score_fingerprint(before, c, "t1.0-p1.0", b)
        != identity.score_fingerprint(after, c, "t1.0-p1.0", b)
        for c, b in cells
    ]
    assert changed == [True, True, True, False]


def test_a_variant_takes_its_base_and_its_own_settings(raw_study):
    raw_study["methods"] = {"stapo-q50": {"base": "stapo", "quantile": 0.5}}
    method = parse_study(raw_study).method("stapo-q50")
    assert method.selection_args == {**METHODS["stapo"].selection_args, "quantile": 0.5}
    assert method.title == "stapo-q50"
    assert METHODS["stapo"].selection_args["quantile"] == 0.75


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
    assert {found.method(name).selection_args["tau_p"] for name in heirs} == {0.01}
    assert {found.method(name).clip_high for name in heirs} == {0.3}
    assert {found.training_of(name).group_size for name in (*heirs, "mine-too")} == {4}
    assert found.training_of("grpo") == found.training
    too = found.method("mine-too")
    assert too.selection_args == {"tau_p": 0.02, "quantile": 0.5, "scope": "candidates"}
    assert (too.clip_high, found.method("justrl").clip_high) == (0.4, 0.28)
    # What is STAPO's own in a built-in variant stays.
    assert found.method("stapo-v2").selection_args == {
        "tau_p": 0.01, "quantile": 0.80, "scope": "all",
    }  # fmt: skip


def test_the_source_of_a_method_says_everything_that_was_changed(raw_study):
    raw_study["methods"] = {
        "tau": {"base": "stapo", "tau_p": 0.01},
        "old": {"base": "stapo-v2", "tau_p": 0.01},
        "tau-too": {"base": "tau", "training": {"group_size": 16}},
        "20-entropy": {"fraction": 0.1},
    }
    before = parse_study(raw_study)
    assert before.method("tau").source == "as STAPO (v4 and v5), but tau_p 0.01"
    assert before.method("old").source == "as STAPO (v2), but tau_p 0.01"
    assert before.method("tau-too").source == "as STAPO (v4 and v5), but tau_p 0.01, group_size 16"
    assert before.method("20-entropy").source.endswith("; here fraction 0.1")
    assert before.method("grpo").source == METHODS["grpo"].source
    raw_study["all_methods"] = {"dual_clip": 10.0}
    after = parse_study(raw_study)
    assert after.method("tau").source == "as STAPO (v4 and v5), but tau_p 0.01, dual_clip 10"
    assert after.method("grpo").source == METHODS["grpo"].source + "; here dual_clip 10"
    # Of no revision of the paper, whatever it descends from.
    assert [after.method(name).revision for name in ("stapo", "stapo-v2", "tau", "grpo")] == [
        "v4 and v5", "v1 to v3", "", "",
    ]  # fmt: skip


def test_the_training_of_a_method_is_part_of_its_fingerprint_and_checked(raw_study):
    before = parse_study(raw_study)
    raw_study["methods"] = {"stapo": {"training": {"group_size": 16}}}
    after = parse_study(raw_study)
    for method in ("grpo", "stapo"):
        changed = identity.train_config(
            before, TrainingRun("tiny", method, 0)
        ) != identity.train_config(after, TrainingRun("tiny", method, 0))
        assert changed == (method == "stapo")
    raw_study["methods"] = {"stapo": {"training": {"prompts_per_mini_batch": 5}}}
    with pytest.raises(StudyError, match=r"methods.stapo.training.prompts_per_mini_batch: 5 does"):
        parse_study(raw_study)


def test_a_method_may_have_no_overlong_penalty_though_the_others_have_one(raw_study):
    """Null is what is inherited, so that 0 is what switches it off."""
    raw_study["training"]["overlong_buffer_tokens"] = 8
    for value, expected in ((None, 8), (0, 0)):
        raw_study["methods"] = {"justrl": {"training": {"overlong_buffer_tokens": value}}}
        assert parse_study(raw_study).training_of("justrl").overlong_buffer_tokens == expected


def test_merge_is_deep_for_mappings_and_replaces_lists():
    merged = merge({"a": {"b": 1, "c": [1, 2]}, "d": 1}, {"a": {"c": [3]}, "e": 2})
    assert merged == {"a": {"b": 1, "c": [3]}, "d": 1, "e": 2}


def test_task_definitions_have_their_includes_and_functions():
    chain = benchmark_definitions()["chain-3"]
    assert chain["metadata"]["rows"] == 100
    assert chain["custom_dataset"] == "!function stapo.evaluation.task.load_rows"


def test_study_and_program_start_without_torch():
    code = "import sys, stapo.study, stapo.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_schema_for_editors_is_printed_and_every_study_fits_it():
    command = [sys.executable, "-m", "stapo", "schema"]
    schema = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert schema == study_schema()
    for path in STUDIES:
        jsonschema.validate(load_yaml(path).content, schema)
    with pytest.raises(jsonschema.ValidationError, match="'stepps' was unexpected"):
        jsonschema.validate({"training": {"stepps": 8}}, schema)


def test_editors_find_the_schema_where_setup_writes_it():
    """It is made from the code that it depends on, and is no file to remember."""
    written = ROOT / "workflows" / "study.schema.json"
    header = re.compile(r"\A# yaml-language-server: \$schema=(.*)\n")
    named = {path: found[1] for path in STUDIES if (found := header.match(path.read_text()))}
    assert len(named) >= 9
    for path, schema in named.items():
        assert (path.parent / schema).resolve() == written, path
    assert "/workflows/study.schema.json" in (ROOT / ".gitignore").read_text().splitlines()
    rule = r"^setup: workflows/study.schema.json\b.*^workflows/study.schema.json: (.*?) \|"
    (made_from,) = re.findall(rule, (ROOT / "Makefile").read_text(), re.M | re.S)
    assert made_from == "stapo/methods.py $(wildcard stapo/study/*.py)"


def test_a_verdict_of_a_verifier_needs_one(raw_study):
    raw_study["evaluation"]["verdict"] = "verifier"
    with pytest.raises(StudyError, match=r"evaluation\.verdict: verifier, but"):
        parse_study(raw_study)
    before = study_of(raw_study, verdict="rule")
    raw_study["evaluation"]["verifier"] = {"revision": "0" * 40}
    found = parse_study(raw_study)
    # Responses stay, scores are made anew; which verdict is shown changes no score.
    where = (Checkpoint("tiny"), "t1.0-p1.0")
    assert identity.generate_config(found, *where) == identity.generate_config(before, *where)
    assert identity.score_fingerprint(found, *where, "chain-2") != identity.score_fingerprint(
        before, *where, "chain-2"
    )
    shown = study_of(raw_study, verdict="rule")
    assert identity.score_fingerprint(found, *where, "chain-2") == identity.score_fingerprint(
        shown, *where, "chain-2"
    )


def study_of(raw, **evaluation):
    return parse_study({**raw, "evaluation": {**raw["evaluation"], **evaluation}})


def test_a_study_extends_another_down_to_the_catalogue():
    paper, small = (
        read_study(STUDIES_DIRECTORY / f"{name}.yaml") for name in ("paper", "single-gpu")
    )
    assert small.training.learning_rate == paper.training.learning_rate
    assert (small.training.max_response_tokens, paper.training.max_response_tokens) == (4096, 15360)
    assert small.evaluation.verifier is None
    assert paper.evaluation.verifier is not None
    assert small.models == paper.models  # Of the catalogue.
    ablation = read_study(STUDIES_DIRECTORY / "ablation-v5.yaml")
    # Two steps down, the same training to the last digit: `stapo` of both need not run twice.
    assert identity.train_config(
        ablation, TrainingRun("1.7B", "stapo", 0)
    ) == identity.train_config(paper, TrainingRun("1.7B", "stapo", 0))


def test_only_commits_are_silent(raw_study):
    raw_study["models"]["mine"] = {"hub": "a/b", "revision": "main"}
    raw_study["run"]["sizes"] = ["mine"]
    assert parse_study(raw_study).unpinned() == [
        "models.mine.revision: a/b at main is not reproducible; pin the commit"
    ]
    raw_study["models"]["mine"]["revision"] = "0" * 40
    assert parse_study(raw_study).unpinned() == []
    raw_study["data"] = {"hub": "a/b", "revision": "0" * 40}
    (line,) = parse_study(raw_study).unpinned()
    assert line.startswith("data.sha256: null: ")
    assert line.endswith(f"in results/{raw_study['name']}/data/prompts.json")
    raw_study["data"]["sha256"] = "0" * 64
    assert parse_study(raw_study).unpinned() == []


def test_to_write_the_found_checksum_into_a_study_trains_nothing_anew():
    paper = parse_study({"name": "mine", "extends": "paper"})
    data = {"sha256": "0" * 64, "unique_prompts": 7}
    pinned = parse_study({"name": "mine", "extends": "paper", "data": data})
    assert identity.train_config(paper, TrainingRun("1.7B", "stapo", 0)) == identity.train_config(
        pinned, TrainingRun("1.7B", "stapo", 0)
    )
    kept = parse_study({"name": "mine", "extends": "paper", "data": {"wrapper": "keep"}})
    assert identity.train_config(paper, TrainingRun("1.7B", "stapo", 0)) != identity.train_config(
        kept, TrainingRun("1.7B", "stapo", 0)
    )


def test_end_tokens_hold_for_training_and_evaluation(raw_study):
    before = parse_study(raw_study)
    assert before.end_tokens == ["<|im_end|>"]
    after = parse_study({**raw_study, "end_tokens": ["<|im_end|>", "</answer>"]})
    run, cell = TrainingRun("tiny", "stapo", 0), (Checkpoint("tiny"), "t1.0-p1.0")
    assert identity.train_config(before, run) != identity.train_config(after, run)
    assert identity.generate_config(before, *cell) != identity.generate_config(after, *cell)


OWN = {"reward": "mine.rewards:score", "reward_sha256": "0" * 64}


def test_a_reward_of_ones_own_is_part_of_what_determines_a_training(raw_study):
    found = []
    for changes in ({}, OWN, {**OWN, "reward_sha256": "1" * 64}, {"overlong_buffer_tokens": 8}):
        training = {**raw_study["training"], **changes}
        study = parse_study({**raw_study, "training": training})
        found.append(identity.train_fingerprint(study, TrainingRun("tiny", "stapo", 0)))
    assert len(set(found)) == len(found)


def test_settings_of_vllms_log_probs_count_only_if_they_are_set_and_change_weights(raw_study):
    def identities(**changes):
        training = {**raw_study["training"], "rollouts": "vllm-colocate", **changes}
        study = parse_study({**raw_study, "training": training})
        assert parse_study(study.model_dump(mode="json")) == study
        run = TrainingRun("tiny", "stapo", 0)
        return identity.study_fingerprint(study), identity.train_fingerprint(study, run)

    unset = identities()
    assert identities(rollout_mismatch_limit=None, rollout_correction=None) == unset
    limited, corrected = identities(rollout_mismatch_limit=0.1), identities(rollout_correction=2.0)
    assert (limited[0] != unset[0], limited[1] != unset[1]) == (True, False)
    assert (corrected[0] != unset[0], corrected[1] != unset[1]) == (True, True)


def test_the_budget_of_token_records_changes_no_training(raw_study):
    def identities(megabytes):
        training = {**raw_study["training"], "token_records_mb": megabytes}
        study = parse_study({**raw_study, "training": training})
        run = TrainingRun("tiny", "stapo", 0)
        return identity.study_fingerprint(study), identity.train_fingerprint(study, run)

    one, other = identities(4), identities(5)
    assert one[0] != other[0]
    assert one[1] == other[1]


def test_a_study_may_change_the_kind_of_what_it_extends():
    data = {"builder": "tiny-arithmetic", "prompts": 64}
    found = parse_study({"name": "mine", "extends": "paper", "data": data})
    assert found.data.model_dump() == {**data, "seed": 0}


def test_later_files_and_changes_are_merged_over_earlier_ones(tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("extends: smoke\nname: mine\nrun: {seeds: [1, 2]}\n")
    second.write_text("run: {seeds: [3]}\ntraining: {steps: 8}\n")
    # Snakemake hands over what stands inside --config as text.
    study = read_study(first, second, changes={"training": {"steps": "16"}})
    assert (study.run.seeds, study.training.steps) == ([3], 16)
    with pytest.raises(StudyError, match=r"^training\.stepps: .*steps\? \(--config\)$"):
        read_study(first, second, changes={"training": {"stepps": "16"}})


@pytest.mark.parametrize(
    "hub", ["a/b", "Qwen/Qwen3-1.7B-Base", "a_b/c_", "_/x", "a" * 96 + "/" + "b" * 96, "a/" + "b" * 97, "a",
            "-a/b", "a/b-", "a/b.", "a//b", "a/b/c", "a/é", "a/b c", "a--b/c", "a..b/c", "a/b.git", "a/b\n"],
)  # fmt: skip
def test_a_hub_id_is_what_the_hub_takes(raw_study, hub):
    raw_study["models"]["mine"] = {"hub": hub, "revision": "main"}
    try:
        validate_repo_id(hub)
        taken = "/" in hub  # An owner is asked for: names without one are old.
    except HFValidationError:
        taken = False
    if taken:
        assert parse_study(raw_study).models["mine"].hub == hub
    else:
        with pytest.raises(StudyError, match=r"^models\.mine\.hub: [^\n]*$"):
            parse_study(raw_study)


def test_the_order_of_end_tokens_and_doubles_change_no_fingerprint(raw_study):
    configs = []
    for tokens in (["a", "b"], ["b", "a", "b"], ["a"]):
        found = parse_study({**raw_study, "end_tokens": tokens})
        cell = identity.generate_config(found, Checkpoint("tiny"), "t1.0-p1.0")
        configs.append([identity.train_config(found, TrainingRun("tiny", "stapo", 0)), cell])
    assert configs[0] == configs[1] != configs[2]


def test_a_size_is_trained_with_its_own_engine_settings_before_the_study_s(raw_study):
    raw_study["engine"] = {"vllm_gpu_memory": 0.4, "sizes": {"tiny": {"vllm_tensor_parallel": 2}}}
    found = parse_study(raw_study)
    own, others = found.engine_of("tiny"), found.engine_of("1.7B")
    assert (own.vllm_tensor_parallel, own.vllm_gpu_memory) == (2, 0.4)
    assert (others.vllm_tensor_parallel, others.vllm_gpu_memory) == (1, 0.4)
    assert found.engine.vllm_tensor_parallel == 1
    raw_study["engine"]["sizes"]["small"] = {}
    with pytest.raises(StudyError, match=r"engine\.sizes: unknown name 'small'"):
        parse_study(raw_study)
