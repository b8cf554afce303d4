"""What a checkpoint is called, and what cannot be evaluated."""

import shutil
from pathlib import Path

import pytest

from stapo.files import write_json
from stapo.operations.checkpoints import checkpoint, find_checkpoints, parse_arguments
from stapo.provenance import checksums


def weights(path: str, content: bytes = b"1") -> str:
    """A directory with what counts as weights and a configuration."""
    Path(path).mkdir(parents=True)
    (Path(path) / "model.safetensors").write_bytes(content)
    (Path(path) / "config.json").write_bytes(b"{}")
    return path


def trained(path: str, content: bytes) -> str:
    """The same, with the record of a training."""
    target = Path(weights(path, content))
    write_json(target.parent / "provenance.json", {"outputs": checksums([target], target.parent)})
    return path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def found(*texts: str, say=print):
    arguments, errors = parse_arguments(texts)
    assert not errors
    return find_checkpoints(arguments, say)[0]


def test_only_what_a_training_recorded_is_called_its_result():
    path = Path(trained("mine/runs/tiny/stapo/seed0/step40", b"1"))
    (one,) = found(str(path))
    assert (one.size, one.title) == ("tiny", "STAPO, seed 0, step 40")
    assert one.name == "mine-tiny-stapo-seed0-step40"
    for name in ("config.json", "model.safetensors"):
        content = (path / name).read_bytes()
        (path / name).write_bytes(content + b" ")
        other = checkpoint(path, str(path))
        assert (other.title, other.size) == (str(path)[-60:], "")
        assert other.checksum != one.checksum
        (path / name).write_bytes(content)
    (path / "other.safetensors").write_bytes(b"1")
    assert checkpoint(path, str(path)).size == ""
    (path.parent / "provenance.json").write_text("[]")
    assert checkpoint(path, str(path)).size == ""


def test_a_base_model_is_one_of_a_study():
    weights("results/mine/models/tiny/base")
    weights("elsewhere/models/tiny/base", b"2")
    one, other = found("results/mine/models/tiny/base", "elsewhere/models/tiny/base")
    assert (one.title, one.name) == ("Base", "mine-tiny-base")
    assert (other.title, other.name) == ("elsewhere/models/tiny/base", "base")
    Path("elsewhere/models/tiny/base.json").write_text("{}")
    assert found("elsewhere/models/tiny/base")[0].name == "elsewhere-tiny-base"


def test_a_study_is_all_of_its_last_checkpoints_in_order():
    weights("results/mine/models/tiny/base", b"0")
    for i, run in enumerate(("stapo/seed10", "stapo/seed9", "grpo/seed0", "own/seed0"), 1):
        trained(f"results/mine/runs/tiny/{run}/model", b"%d" % i)
    weights("results/mine/runs/tiny/stapo/seed9/step5", b"5")
    titles = ["Base", "GRPO, seed 0", "STAPO, seed 9", "STAPO, seed 10", "own, seed 0"]
    assert [one.title for one in found("results/mine")] == titles
    shutil.copytree("results/mine", "copy")
    (Path("copy/models/tiny/base.json")).write_text("{}")
    assert [one.title for one in found("A=copy")] == [f"A {title}" for title in titles]
    assert found("A=copy")[0].name == "A-Base"
    shutil.rmtree("results/mine/models")
    shutil.rmtree("results/mine/runs/tiny")
    _, (error,) = parse_arguments(["results/mine"])
    assert error.startswith("results/mine: a study whose weights were removed")


def test_names_and_titles_are_unique():
    weights("a/model", b"1")
    weights("b/model", b"2")
    arguments, _ = parse_arguments(["a/model", "b/model"])
    _, errors = find_checkpoints(arguments, print)
    # What these files hold is no model, which is said first.
    assert [line.rpartition("; ")[2] for line in errors] == [
        *["copy the checkpoint again"] * 2,
        "give it a label: LABEL=a/model", "give it a label: LABEL=b/model",
    ]  # fmt: skip
    assert [one.name for one in found("a/model", "other=b/model")] == ["model", "other"]
    for study in ("x", "y"):
        weights(f"results/{study}/models/tiny/base", study.encode())
    assert [one.title for one in found("results/x", "results/y")] == ["x-tiny-base", "y-tiny-base"]
    one, other = found("\u6a21\u578b=a/model", "\u57fa\u7ebf=b/model")
    assert one.title == "\u6a21\u578b"
    assert one.name != other.name


def test_equal_weights_are_shown_once():
    weights("a/one")
    weights("b/two")
    said: list[str] = []
    assert [one.title for one in found("a/one", "b/two", say=said.append)] == ["a/one"]
    assert said == ["b/two: the same weights as a/one; shown once."]


def test_a_path_with_an_equals_sign_needs_no_label():
    weights("lr=0.1/model")
    assert [one.title for one in found("lr=0.1/model")] == ["lr=0.1/model"]
    assert [one.title for one in found("mine=lr=0.1/model")] == ["mine"]


def test_a_model_that_cannot_be_downloaded_is_said(monkeypatch):
    def fails(*args, **settings):
        raise OSError("no network\nat all")

    monkeypatch.setattr("stapo.operations.checkpoints.snapshot_download", fails)
    monkeypatch.setattr("stapo.operations.checkpoints.with_retries", lambda get: get())
    with pytest.raises(RuntimeError, match=r"^o/m@x: cannot be downloaded \(no network\); without"):
        found("mine=o/m@x")
