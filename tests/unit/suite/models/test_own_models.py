"""Models in a folder, and chat templates that a study names."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from damaged import INCOMPLETE, INFINITE, weights
from studies import lines_of, own_study

from stapo.suite.jobs import jobs_of
from stapo.suite.jobs.prepare import model_settings
from stapo.suite.models.base import write_base
from stapo.suite.models.loading import load_model, load_tokenizer
from stapo.suite.models.shapes import shape_of
from stapo.suite.study import Study, StudyError, parse_study
from stapo.suite.study.reading import published_content


def asked(study: Study) -> Any:
    """Return everything that determines the base model."""
    return jobs_of(study).job("base", "own").config


def test_a_folder_is_copied_and_its_content_is_in_the_fingerprint_not_its_place(folder):
    before = own_study()
    write_base(before.models["own"], folder / "base")
    assert load_model(folder / "base", torch.float32).config.num_hidden_layers == 2
    assert load_tokenizer(folder / "base").eos_token == "<eos>"
    assert shape_of(before.models["own"]).layers == 2
    assert model_settings(before.models["own"]) == {"sha256": before.models["own"].sha256}
    shutil.copytree("weights", "copied")
    assert asked(own_study("path: copied")) == asked(before)
    with (folder / "weights" / "config.json").open("a") as stream:
        stream.write("\n")
    assert asked(own_study()) != asked(before)
    with pytest.raises(StudyError, match="its files changed since the study was read"):
        write_base(before.models["own"], folder / "other")
    assert not (folder / "other").exists()


def test_a_published_study_names_no_path(folder):
    study = own_study()
    published = parse_study(published_content(study))
    assert asked(published) == asked(study)
    with pytest.raises(StudyError, match="shape of weights unknown"):
        shape_of(published.models["own"])
    with pytest.raises(StudyError, match=r"models\.own\.path: the file was not read"):
        parse_study({**published_content(study), "models": {"own": {"path": "weights"}}})


OWN = "path: weights"
WEIGHTS, TOKENIZER = "model.safetensors", ("tokenizer.json", "tokenizer_config.json")
FAULTS: list[tuple[str, str, dict[str, str | None]]] = [
    # settings, words of the error, files that are written (in the folder of the weights) or removed
    ("path: absent", "models.own.path: absent: no such folder", {}),
    ("hub: /tmp/weights, revision: main", "`path:` is a model", {}),
    (f"path: weights, sha256: {'a' * 64}", f"sha256: expected {'a' * 64}, found ", {}),
    (OWN, "no weights; save them as safetensors", {WEIGHTS: None, "a.bin": ""}),
    (OWN, "no tokenizer", dict.fromkeys(TOKENIZER)),
    (OWN, "no readable config.json", {"config.json": None}),
]


@pytest.mark.parametrize(("settings", "words", "files"), FAULTS)
def test_what_is_no_model_is_refused_with_its_reason(folder, settings, words, files):
    for name, text in files.items():
        path = folder / "weights" / name
        path.unlink() if text is None else path.write_text(text)
    with pytest.raises(StudyError) as error:
        write_base(own_study(settings).models["own"], folder / "base")
    assert words in "\n".join(error.value.errors)


@pytest.mark.parametrize("case", ["missing tensor", "truncated weights", "NaN"])
def test_weights_are_copied_and_loaded_completely_or_not_at_all(folder, case):
    damage, words = (INCOMPLETE | INFINITE)[case]
    damage(folder / "weights")
    written = own_study().models["own"]
    tries = {
        written.path: partial(write_base, written, folder / "base"),
        "weights": partial(load_model, Path("weights"), torch.float32),
    }
    for name, load in tries.items():
        (line,) = lines_of(load)
        assert line.startswith(f"{name}: ")
        assert words in line
        assert "; " in line  # A remedy.
    assert not (folder / "base").exists()


def test_a_head_that_config_json_ties_is_not_trained_as_another_one(folder):
    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    for factor in (1, 2):
        weights(folder / "weights", lambda held, by=factor: held | {head: by * held[embedding]})
        if factor == 1:
            assert load_model("weights", torch.float32)
        else:
            with pytest.raises(StudyError, match="set tie_word_embeddings to false"):
                load_model("weights", torch.float32)
