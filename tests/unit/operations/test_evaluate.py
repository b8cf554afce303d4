"""Any checkpoint into the pipeline's table, and again without generating."""

import shutil
from pathlib import Path

import pytest

from stapo.files import read_jsonl, write_json
from stapo.models.tiny import build_tiny
from stapo.operations.evaluate import checkpoint, evaluate, find_checkpoint
from stapo.provenance import checksums
from stapo.study import StudyError
from stapo.study.schema import TinyModel

SETTINGS = {"backend": "hf", "batch_size": 200, "max_response_tokens": 24}


def test_a_checkpoint_outside_any_study(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    build_tiny(TinyModel(builder="tiny-arithmetic", supervised_steps=5), tmp_path / "my_model")
    names = ["chain-2", "chain-3"]
    tables = evaluate("my_model", names, ["t1.0-p1.0"], SETTINGS)
    first = {path: path.read_bytes() for path in tmp_path.glob("results/**/*") if path.is_file()}
    assert [path.suffix for path in tables] == [".md", ".tex", ".csv"]
    assert "my-model" in tables[0].read_text()
    assert "chain-3 avg@4" in tables[0].read_text()
    assert "my-model" in capsys.readouterr().out
    (store,) = (tmp_path / "work").rglob("chain-2-*.jsonl")
    before = store.read_bytes()
    assert len(read_jsonl(store)) == 400
    evaluate("my_model", names, ["t1.0-p1.0"], SETTINGS)
    assert store.read_bytes() == before
    assert {p for p in tmp_path.glob("results/**/*") if p.is_file()} == set(first)
    # Fewer benchmarks are another table, from the same responses.
    evaluate("my_model", names[:1], ["t1.0-p1.0"], SETTINGS)
    assert store.read_bytes() == before
    # Other weights under the same name are another checkpoint: generated anew, never mixed.
    build_tiny(TinyModel(builder="tiny-arithmetic", supervised_steps=6), tmp_path / "my_model")
    evaluate("my_model", names, ["t1.0-p1.0"], SETTINGS)
    assert len(list((tmp_path / "work").rglob("chain-2-*.jsonl"))) == 2
    # None of these evaluations overwrote another.
    assert all(path.read_bytes() == content for path, content in first.items())
    assert len(list((tmp_path / "results").iterdir())) == 3


def published(path: Path, steps: int) -> Path:
    """A checkpoint with the record of a training, as the pipeline leaves them."""
    build_tiny(TinyModel(builder="tiny-arithmetic", supervised_steps=steps), path)
    write_json(path.parent / "provenance.json", {"outputs": checksums([path], path.parent)})
    return path


def test_trained_checkpoints_are_called_by_what_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    models = [
        str(
            published(
                tmp_path / "results" / "mine" / "runs" / "tiny" / method / "seed1" / "model", i
            )
        )
        for i, method in enumerate(("stapo", "grpo"), 1)
    ]
    tables = [evaluate(model, ["chain-2"], ["t1.0-p1.0"], SETTINGS)[0] for model in models]
    texts = [table.read_text() for table in tables]
    assert "| tiny | STAPO, seed 1 |" in texts[0]
    assert "| tiny | GRPO, seed 1 |" in texts[1]
    assert [table.parts[1].rpartition("-")[0] for table in tables] == [
        "evaluate-mine-tiny-stapo-seed1", "evaluate-mine-tiny-grpo-seed1"
    ]  # fmt: skip
    assert ",stapo," in tables[0].with_suffix(".csv").read_text()
    assert "Base" not in capsys.readouterr().out + "".join(texts)


def test_only_what_a_training_recorded_is_called_its_result(tmp_path):
    path = published(tmp_path / "mine" / "runs" / "tiny" / "stapo" / "seed0" / "step40", 1)
    found = checkpoint(str(path))
    assert found.title == "STAPO, seed 0, step 40"
    assert found.name == "mine-tiny-stapo-seed0-step40"
    for name in ("config.json", "model.safetensors"):
        content = (path / name).read_bytes()
        (path / name).write_bytes(content + b" ")
        other = checkpoint(str(path))
        assert (other.title, other.size) == (str(path)[-60:], "")
        assert other.checksum != found.checksum
        (path / name).write_bytes(content)
    (path / "other.safetensors").write_bytes(b"1")
    assert checkpoint(str(path)).size == ""
    (path.parent / "provenance.json").write_text("[]")
    assert checkpoint(str(path)).size == ""
    base = tmp_path / "results" / "mine" / "models" / "tiny" / "base"
    shutil.copytree(path, base)
    assert checkpoint(str(base)).title == "Base"
    assert checkpoint(str(base)).name == "mine-tiny-base"


def test_what_cannot_be_evaluated_is_said(tmp_path):
    with pytest.raises(StudyError, match="neither a directory nor a Hub model"):
        find_checkpoint("nothing")
    with pytest.raises(StudyError, match="only supported format of weights"):
        find_checkpoint(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"1")
    one = checkpoint(str(tmp_path)).checksum
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert checkpoint(str(tmp_path)).checksum != one
