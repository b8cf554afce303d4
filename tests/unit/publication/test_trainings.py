"""Which trainings may have come to the same updates, and which of them must have been copied."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from synthetic_tokens import population, write_tokens

from stapo.models.arithmetic import VOCABULARY
from stapo.publication.metrics_check import Step
from stapo.publication.trainings import _copied_metrics, _token_faults, acts_alike
from stapo.publication.vocabulary import token_texts
from stapo.study import Checkpoint, TrainingRun, parse_study

STEP = Step(entropy=1.0, loss=-0.5, gradient_norm=0.25, kept_fraction=1.0)
RUNS = TrainingRun("tiny", "justrl", 0), TrainingRun("tiny", "by-group", 0)


@pytest.mark.parametrize(("prompts", "alike"), [(1, True), (16, False)])
def test_the_mean_over_the_only_group_is_that_over_the_mini_batch(prompts, alike):
    study = parse_study(
        {
            "extends": "smoke",
            "name": "mine",
            "training": {"prompts_per_mini_batch": prompts},
            "methods": {"by-group": {"base": "justrl", "aggregation": "group_token_mean"}},
            "run": {"methods": ["justrl", "by-group"]},
        }
    )
    steps = {run: [STEP] for run in RUNS}
    assert acts_alike(study, *RUNS, steps) == alike
    assert bool(list(_copied_metrics(study, steps))) != alike


@pytest.mark.parametrize(("warm_up", "unchanged"), [(0, 1), (4, 2)])
def test_a_kl_term_has_no_effect_before_the_weights_change(warm_up, unchanged):
    study = parse_study(
        {
            "extends": "smoke",
            "name": "mine",
            "training": {"warmup_steps": warm_up},
            "methods": {"by-group": {"base": "justrl", "kl_coefficient": 0.04}},
            "run": {"methods": ["justrl", "by-group"]},
        }
    )
    own = [replace(STEP, entropy=1.0 / number) for number in range(1, 5)]
    for same in range(5):
        changed = [replace(step, gradient_norm=0.5) for step in own[same:]]
        found = [*_copied_metrics(study, {RUNS[0]: own, RUNS[1]: own[:same] + changed})]
        assert bool(found) == (same > unchanged)
    assert not acts_alike(study, *RUNS, {run: own for run in RUNS})


@pytest.mark.parametrize("about", [b"junk", b"\xff", b"[" * 10**5])
def test_what_cannot_be_checked_is_a_fault_of_this_file(raw_study, tmp_path, about):
    study, path = parse_study(raw_study), tmp_path / "tokens.parquet"
    write_tokens(path, population(np.random.default_rng(0), steps=1))
    table = pq.read_table(path).replace_schema_metadata({"stapo": about})
    results = SimpleNamespace(
        study=study, tokens=lambda run: table, metrics=lambda run: [], num_prompts=9, files={}
    )
    (found,) = _token_faults(results, TrainingRun("tiny", "stapo", 0), {"prompts_too_long": 0})
    assert found.startswith("impossible content")


def test_texts_of_tokens_are_read_from_a_byte_level_vocabulary(raw_study, tmp_path):
    tiny = Checkpoint("tiny")
    results = SimpleNamespace(study=parse_study(raw_study), files={})
    assert token_texts(results, tiny) == dict(enumerate(VOCABULARY))
    raw_study["run"]["sizes"] = ["1.7B"]
    results = SimpleNamespace(study=parse_study(raw_study), files={})
    size = Checkpoint("1.7B")
    assert token_texts(results, size) is None
    file = tmp_path / "tokenizer.json"
    results.files["models/1.7B/base/tokenizer.json"] = file
    vocab = {"\u0120so": 0, "\u010a": 1, "\u00c3\u00a9": 2, "\u00c3": 3, "x": 4}
    content = {
        "decoder": {"type": "ByteLevel"},
        "model": {"vocab": vocab},
        "added_tokens": [{"id": 5, "content": "<|im_end|>"}],
    }
    file.write_text(json.dumps(content))
    expected = {0: " so", 1: "\n", 2: "\u00e9", 3: "\ufffd", 4: "x", 5: "<|im_end|>"}
    assert token_texts(results, size) == expected
    for broken in ({**content, "decoder": {"type": "Metaspace"}}, {**content, "model": []}, []):
        file.write_text(json.dumps(broken))
        assert token_texts(results, size) is None
