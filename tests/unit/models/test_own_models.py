"""Models in a folder, and chat templates that a study names."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from stapo.cli.common import study_of
from stapo.evaluation.sampling import Prompter
from stapo.models.base import write_base
from stapo.models.loading import load_model, load_tokenizer
from stapo.models.shapes import shape_of
from stapo.models.tiny import build_model, build_tokenizer
from stapo.stages import jobs_of
from stapo.stages.base import model_settings
from stapo.study import Study, StudyError, model_folder, parse_study, read_study
from stapo.study.reading import published_content, resolved_content
from stapo.study.sources import TinyModel

STUDY = """
extends: smoke
name: mine
models: {own: {path: weights}}
run: {sizes: [own]}
"""
TEMPLATE = "{% for m in messages %}<{{ m['content'] }}>{% endfor %}"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "weights"
    build_model(TinyModel(builder="tiny-arithmetic", supervised_steps=1)).save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def folder(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(weights, tmp_path / "weights")
    (tmp_path / "mine.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(folder: Path, settings: str = "path: weights") -> Study:
    (folder / "mine.yaml").write_text(STUDY.replace("path: weights", settings))
    return read_study(folder / "mine.yaml")


def test_a_folder_is_copied_and_loaded(folder):
    study = read(folder)
    write_base(study.model("own").model_dump(), folder / "base")
    assert load_model(folder / "base", torch.float32).config.num_hidden_layers == 2
    assert load_tokenizer(folder / "base").eos_token == "<eos>"
    assert shape_of(study.model("own")).layers == 2
    assert model_settings(study.models["own"]) == {"sha256": study.models["own"].sha256}


def test_its_content_is_in_the_fingerprint_and_its_place_is_not(folder):
    before = read(folder)
    shutil.copytree("weights", "copied")
    assert (
        jobs_of(read(folder, "path: copied")).one("base", "own").config
        == jobs_of(before).one("base", "own").config
    )
    (folder / "weights" / "config.json").write_text(
        (folder / "weights" / "config.json").read_text() + "\n"
    )
    after = read(folder)
    assert jobs_of(after).one("base", "own").config != jobs_of(before).one("base", "own").config
    with pytest.raises(StudyError, match="its files changed since the study was read"):
        write_base(before.model("own").model_dump(), folder / "base")
    assert not (folder / "base").exists()


def test_files_are_hashed_again_only_if_they_changed(folder, monkeypatch):
    hashed = []
    sha256 = model_folder._sha256
    monkeypatch.setattr(model_folder, "_sha256", lambda path: hashed.append(path) or sha256(path))
    first = read(folder).models["own"].sha256
    assert len(hashed) >= 3
    hashed.clear()
    assert read(folder).models["own"].sha256 == first
    assert hashed == []
    file = folder / "weights" / "model.safetensors"
    os.utime(file, (1, 1))
    assert read(folder).models["own"].sha256 == first
    assert hashed == [str(file)]
    (folder / "work" / "checksums.json").write_text("{")
    assert read(folder).models["own"].sha256 == first


def test_a_published_study_names_no_path(folder):
    study = read(folder)
    published = parse_study(published_content(study))
    assert jobs_of(published).one("base", "own").config == jobs_of(study).one("base", "own").config
    with pytest.raises(StudyError, match="shape of weights unknown"):
        shape_of(published.model("own"))
    with pytest.raises(StudyError, match=r"models\.own\.path: the file was not read"):
        parse_study({**published_content(study), "models": {"own": {"path": "weights"}}})


def test_what_is_no_model_is_refused_with_its_reason(folder):
    weights = folder / "weights"

    def lines(settings: str = "path: weights") -> str:
        with pytest.raises(StudyError) as error:
            read(folder, settings)
        return "\n".join(error.value.errors)

    assert "models.own.path: absent: no such folder (mine.yaml:4)" in lines("path: absent")
    assert "use" not in lines("path: absent")
    assert "`path:` is a model" in lines(f"hub: {weights}, revision: main")
    wrong = lines(f"path: weights, sha256: {'a' * 64}")
    assert f"sha256: expected {'a' * 64}, found " in wrong
    (weights / "model.safetensors").rename(weights / "pytorch_model.bin")
    assert "only pickled weights (pytorch_model.bin), which could run code" in lines()
    (weights / "pytorch_model.bin").unlink()
    assert "weights: no weights; save them as safetensors" in lines()
    (weights / "a.safetensors").write_text("")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (weights / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "b.safetensors of its index is missing" in lines()
    (weights / "config.json").write_text('{"auto_map": {"AutoModel": "m.M"}}')
    (weights / "tokenizer.json").unlink()
    (weights / "tokenizer_config.json").unlink()
    assert "needs its own Python code" in lines()
    assert "no tokenizer" in lines()
    (weights / "config.json").unlink()
    assert "no readable config.json" in lines()


@pytest.mark.parametrize(("setting", "shown"), [("raw", "chain:3+4?"), ("t.jinja", None)])
def test_a_chat_template_of_the_studys_own(folder, setting, shown):
    (folder / "t.jinja").write_text(TEMPLATE)
    plain = read(folder)
    study = read(folder, f"path: weights, chat_template: {setting}")
    assert jobs_of(study).one("base", "own").config != jobs_of(plain).one("base", "own").config
    again = parse_study(resolved_content(study))
    write_base(again.model("own").model_dump(), folder / "base")
    tokenizer = Prompter(folder / "base", ()).tokenizer
    chat = [{"role": "user", "content": "chain:3+4?"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == (shown or "<chain:3+4?>")
    if setting != "raw":
        (folder / "t.jinja").write_text(TEMPLATE + "!")
        changed = study_of(folder / "mine.yaml")
        assert (
            jobs_of(changed).one("base", "own").config != jobs_of(study).one("base", "own").config
        )


def test_a_faulty_chat_template_is_a_line(folder):
    def lines(setting: str) -> str:
        with pytest.raises(StudyError) as error:
            study = read(folder, f"path: weights, chat_template: {setting}")
            write_base(study.model("own").model_dump(), folder / "base")
        return "\n".join(error.value.errors)

    assert "models.own.chat_template: absent.jinja: No such file" in lines("absent.jinja")
    assert "expected raw, or a file that ends in .jinja" in lines("none")
    (folder / "t.jinja").write_text("{{ 1 }}")
    assert "chat_template leaves out the question" in lines("t.jinja")
    (folder / "t.jinja").write_text("{{ raise_exception('no') }}")
    assert "chat_template fails: TemplateError: no" in lines("t.jinja")
