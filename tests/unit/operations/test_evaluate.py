"""Checkpoints from anywhere are a study without trainings, in one table, and again without generating."""

import csv
import shutil
from pathlib import Path

import pytest
import yaml

from stapo.models.tiny import build_tiny
from stapo.operations.evaluate import evaluate
from stapo.study import StudyError, read_study
from stapo.study.sources import TinyModel

SECTION = {"backend": "hf", "batch_size": 200, "max_response_tokens": 12, "seed": 1}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[int, Path]:
    """Steps of supervised training -> the model after them."""
    root = tmp_path_factory.mktemp("models")
    for steps in (1, 2, 3):
        settings = TinyModel(builder="tiny-arithmetic", supervised_steps=steps, hidden_size=32)
        build_tiny(settings, root / str(steps))
    return {steps: root / str(steps) for steps in (1, 2, 3)}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def asked(*models: str, name: str | None = None, samples: int | None = 4) -> list[Path]:
    return evaluate(models, ["chain-2"], ["t1.0-p1.0"], SECTION, samples, name)


def stores() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path("work").rglob("chain-2-*.jsonl")}


def test_checkpoints_and_a_study_in_one_table(built):
    shutil.copytree(built[1], "results/mine/models/tiny/base")
    shutil.copytree(built[2], "results/mine/runs/tiny/stapo/seed0/model")
    shutil.copytree(built[3], "my model")
    mine = "results/mine/models/tiny/base", "results/mine/runs/tiny/stapo/seed0/model"
    file, table, *_, values = asked(*mine, "other=my model", name="all")
    sizes = ["mine-tiny-base", "mine-tiny-stapo-seed0", "other"]
    assert yaml.safe_load(file.read_text())["run"]["sizes"] == sizes
    found = [*csv.DictReader(values.open())]
    found = [row for row in found if row["metric"] == "difference of avg@N"]
    pairs = {(row["method"], row["reference"]) for row in found}
    assert pairs == {(sizes[1], sizes[0]), (sizes[2], sizes[0]), (sizes[2], sizes[1])}
    assert all(0 < float(row["p_value"]) <= float(row["p_holm"]) <= 1 for row in found)
    assert all(f"| {size} |" in table.read_text() for size in sizes)
    # The file is a study: who changes what has no option gives it to Snakemake.
    assert list(read_study(file).runs()) == []
    before, answers = table.read_bytes(), stores()
    assert len(answers) == 3

    asked(*mine, "other=my model", name="all")
    # Under another label, and beside others, nothing is generated again either.
    asked("mine=my model", name="one")
    assert (stores(), table.read_bytes()) == (answers, before)
    with pytest.raises(StudyError, match="results/all: has other results; choose another --name"):
        asked("other=my model", name="all")
    # Without a name, other questions and other weights have other folders.
    first = asked("my model", samples=4)[0]
    shutil.rmtree("my model")
    shutil.copytree(built[1], "my model")
    assert asked("my model", samples=5)[0] != first


def test_every_error_is_said_before_anything_is_done(built):
    for name in ("bare", "same"):
        shutil.copytree(built[1], name)
    Path("bare/config.json").unlink()
    models = ["nothing", "bare", "same", "same/"]
    with pytest.raises(StudyError) as said:
        evaluate(models, ["chain-9"], ["hot"], SECTION, 1, "a")
    starts = [
        "nothing: neither a directory nor a Hub model",
        "same: the name of 2 checkpoints",
        "run.decodings: unknown name 'hot'",
        "benchmarks.chain-9: ",
        "models.bare.path: ",
    ]
    errors = said.value.errors
    missing = [start for start in starts if not any(start in line for line in errors)]
    assert not missing, errors
    assert not any(Path(name).exists() for name in ("work/base", "results"))
