"""Any checkpoint into the pipeline's table, and again without generating."""

import pytest

from stapo.artifacts import read_jsonl
from stapo.models.tiny import build_tiny
from stapo.operations.evaluate import checksum, evaluate, find_checkpoint
from stapo.schema import TinyModel
from stapo.study import StudyError

SETTINGS = {"backend": "hf", "batch_size": 200, "max_response_tokens": 24}


def test_a_checkpoint_outside_any_study(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    build_tiny(TinyModel(builder="tiny-arithmetic", supervised_steps=5), tmp_path / "my_model")
    names = ["chain-2", "chain-3"]
    tables = evaluate("my_model", names, ["t1.0-p1.0"], SETTINGS)
    assert [path.suffix for path in tables] == [".md", ".tex", ".csv"]
    assert "my-model" in tables[0].read_text()
    assert "chain-3 avg@4" in tables[0].read_text()
    assert "my-model" in capsys.readouterr().out
    (store,) = (tmp_path / "work").rglob("chain-2-*.jsonl")
    before = store.read_bytes()
    assert len(read_jsonl(store)) == 400
    evaluate("my_model", names, ["t1.0-p1.0"], SETTINGS)
    assert store.read_bytes() == before
    # Other weights under the same name are another checkpoint: generated anew, never mixed.
    build_tiny(TinyModel(builder="tiny-arithmetic", supervised_steps=6), tmp_path / "my_model")
    evaluate("my_model", names, ["t1.0-p1.0"], SETTINGS)
    assert len(list((tmp_path / "work").rglob("chain-2-*.jsonl"))) == 2


def test_what_cannot_be_evaluated_is_said(tmp_path):
    with pytest.raises(StudyError, match="no directory, and no Hub model"):
        find_checkpoint("nothing")
    with pytest.raises(StudyError, match="only weight format"):
        find_checkpoint(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"1")
    one = checksum(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert checksum(tmp_path) != one
