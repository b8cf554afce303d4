"""Interventions of somebody else must be possible with the settings of their study."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_interventions import write_intervention

from stapo.publication import untrusted
from stapo.publication.folder import Results, admit, files_needed
from stapo.publication.interventions import intervention_errors
from stapo.publication.manifest import layout
from stapo.records.interventions import SCHEMA
from stapo.study import Checkpoint, Study, parse_study

BASE = Checkpoint("tiny")
NUMBERS, TOKENS = "interventions/tiny/base.json", "interventions/tiny/base.parquet"


@pytest.fixture
def study(raw_study: dict[str, Any]) -> Study:
    raw_study["name"] = "demo"
    raw_study["interventions"] = {"checkpoints": ["tiny/base"], "repetitions": 2}
    return parse_study(raw_study)


@pytest.fixture
def results(study: Study, tmp_path: Path) -> Results:
    write_intervention(tmp_path, study, BASE)
    folder = tmp_path / "results" / "demo"
    return Results(study, tmp_path, folder, lambda: layout(study), {}, untrusted.sha256)


def test_what_the_command_writes_has_no_faults(results):
    assert [*intervention_errors(results)] == []


def arm(name: str, **values: Any) -> Callable[[Any], Any]:
    return lambda one: one["arms"][name].update(values)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (arm("random_candidates", silenced=2), "random_candidates silences 2 tokens instead of 3"),
        (arm("none", silenced=1), "none silences 1 tokens instead of 0"),
        (arm("s2t", silenced=4), "S2T silences 4 of 4 candidates, by the method 0 to 3"),
        (arm("none", cosine=0.5), "the cosine of a gradient with itself is not 1"),
        (arm("s2t", cosine=1.5), "s2t: a cosine of 1.5"),
        (arm("s2t", kl=-0.1), "s2t: a negative entropy, divergence or gradient norm"),
        (arm("s2t", reward=0.3), "reward 0.3 is no share of 256"),
        (lambda one: one.update(rollout_reward=0.3), "reward 0.3 is no share of 128"),
        (lambda one: one.update(candidates=50), "50 candidates of 40 tokens with A > 0 of 85"),
        (lambda one: one.update(held_out_tokens=0), "85 and 0 tokens of at most 48"),
        (lambda one: one.update(repetition=1), "not the repetitions 0, 1, 2 and so on"),
        (lambda one: one.update(more=1), "other fields than those of a repetition"),
        (lambda one: one["arms"].pop("s2t"), "other arms than none, s2t"),
        (arm("s2t", silenced=True), "silenced is not a finite number"),
        (arm("s2t", kl=10**400), "kl is not a finite number"),
        (lambda one: one.update(tokens=10**400), "tokens is not a finite number"),
    ],
)
def test_changed_numbers_are_noticed(results, change, fault):
    path = results.folder / NUMBERS
    found = json.loads(path.read_text())
    change(found["repetitions"][0])
    path.write_text(json.dumps(found))
    errors = [*intervention_errors(results)]
    assert any(fault in line for line in errors), errors


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"fingerprint": "0" * 16}, "made with other settings"),
        ({"checkpoint": "tiny/justrl/seed0"}, "of another checkpoint or method"),
        ({"responses": 8}, "not 2 repetitions of 256 held-out responses"),
        ({"version": 0}, "not the fields of interventions of version 1"),
    ],
)
def test_numbers_of_something_else_are_noticed(results, changes, fault):
    path = results.folder / NUMBERS
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    assert [*intervention_errors(results)] == [f"results/demo/{NUMBERS}: {fault}"]


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("candidate", False, "not a candidate or not silenced, by its own columns"),
        ("silenced", False, "silenced 3, its tokens give 2"),
        ("logp", 0.5, "impossible values"),
        ("logp", float("nan"), "impossible values"),
        ("advantage", 2.0, "another advantage than the rest of its response"),
        ("response", 500, "impossible values"),
        ("position", 1, "a token twice"),
        ("repetition", 7, "tokens of other repetitions"),
    ],
)
def test_changed_tokens_are_noticed(results, name, value, fault):
    path = results.folder / TOKENS
    columns = pq.ParquetFile(path).read().to_pydict()
    columns[name][0] = value
    arrays = [pa.array(columns[f.name], f.type) for f in SCHEMA]
    pq.write_table(pa.table(arrays, schema=SCHEMA), path)
    errors = [*intervention_errors(results)]
    assert any(fault in line for line in errors), errors


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_token_with_an_unknown_value_is_noticed(results, name):
    path = results.folder / TOKENS
    table = pq.ParquetFile(path).read()
    columns = table.to_pydict()
    columns[name][0] = None
    pq.write_table(
        pa.table([pa.array(columns[f.name], f.type) for f in SCHEMA], SCHEMA.names), path
    )
    errors = [*intervention_errors(results)]
    assert any("impossible values" in line or "other repetitions" in line for line in errors), (
        errors
    )


def test_only_files_of_the_right_form_are_admitted(results):
    study = results.study

    def refused() -> list[str]:
        # The rest of the study is not here.
        return [line for line in admit(study, results.folder, results.layout)[1] if "base" in line]

    for number in range(files_needed(study)):  # With fewer files, no single one is looked at.
        (results.folder / f"file{number}").touch()
    assert refused() == []
    pq.write_table(pa.table({"a": [1]}), results.folder / TOKENS)
    (results.folder / NUMBERS).write_text("{")
    assert [line.partition(":")[0] for line in refused()] == [NUMBERS, TOKENS]
