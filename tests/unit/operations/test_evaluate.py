"""Checkpoints from anywhere are a study without trainings, in one table, and again without generating."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from stapo.models.tiny import build_tiny
from stapo.operations.evaluate import evaluate
from stapo.provenance import write_sums
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


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def asked(*models: str, name: str | None = None, samples: int | None = 4) -> list[Path]:
    return evaluate(models, ["chain-2"], ["t1.0-p1.0"], SECTION, samples, name)


@pytest.mark.usefixtures("here")
def test_checkpoints_and_a_study_in_one_table(built):
    shutil.copytree(built[1], "results/mine/models/tiny/base")
    shutil.copytree(built[2], "results/mine/runs/tiny/stapo/seed0/model")
    shutil.copytree(built[3], "my model")
    file, table, *_, values = asked("results/mine", "other=my model", name="all")
    sizes = ["mine-tiny-base", "mine-tiny-stapo-seed0", "other"]
    assert yaml.safe_load(file.read_text())["run"]["sizes"] == sizes
    found = [
        row for row in pq.read_table(values).to_pylist() if row["metric"] == "difference of avg@N"
    ]
    pairs = {(row["method"], row["reference"]) for row in found}
    assert pairs == {(sizes[1], sizes[0]), (sizes[2], sizes[0]), (sizes[2], sizes[1])}
    assert all(0 < row["p_value"] <= row["p_holm"] <= 1 for row in found)
    text, before = table.read_text(), table.read_bytes()
    assert all(f"| {size} |" in text for size in sizes)
    # The file is a study: who changes what has no option gives it to Snakemake.
    study = read_study(file)
    assert (study.run.methods, list(study.runs())) == ([], [])
    stores = {path: path.read_bytes() for path in Path("work").rglob("chain-2-*.jsonl")}
    assert len(stores) == 3

    asked("results/mine", "other=my model", name="all")
    # Under another label, and beside others, nothing is generated again either.
    asked("mine=my model", name="one")
    assert {path: path.read_bytes() for path in Path("work").rglob("chain-2-*.jsonl")} == stores
    assert table.read_bytes() == before
    with pytest.raises(StudyError, match="results/all: has other results; choose another --name"):
        asked("other=my model", name="all")
    # Without a name, other questions and other weights have other folders.
    first = asked("my model", samples=4)[0]
    shutil.rmtree("my model")
    shutil.copytree(built[1], "my model")
    assert asked("my model", samples=5)[0] != first


@pytest.mark.usefixtures("here")
def test_every_error_is_said_before_anything_is_done(built, monkeypatch):
    for name in ("damaged", "bare", "code", "same"):
        shutil.copytree(built[1], name)
    write_sums(Path("damaged"))
    Path("damaged/generation_config.json").write_text("{}")
    Path("bare/config.json").unlink()
    Path("code/config.json").write_text(
        '{"auto_map": {}, "x": 1, "auto_map": {"AutoModel": "m.M"}}'
    )
    Path("empty").mkdir()
    monkeypatch.setattr("stapo.operations.evaluate.find_spec", lambda name: None)
    models = ["nothing", "damaged", "bare", "code", "empty", "same", "same/"]
    with pytest.raises(StudyError) as said:
        evaluate(models, ["chain-9"], ["hot"], {**SECTION, "backend": "vllm", "seed": -1}, 0, "a b")
    starts = [
        "same: the name of 2 checkpoints",
        "damaged/generation_config.json: missing, truncated or corrupt",
        "--backend vllm: vLLM is not installed",
        "name: expected letters",
        "evaluation.seed: Input should be greater",
        "run.decodings: unknown name 'hot'",
        "benchmarks.chain-9: ",
        "models.bare.path: ",
        "models.code.path: ",
        "models.empty.path: ",
    ]
    errors = said.value.errors
    assert errors[0].startswith("nothing: neither a directory nor a Hub model")
    missing = [start for start in starts if not any(start in line for line in errors)]
    assert not missing, errors
    assert not any(Path(name).exists() for name in ("work/base", "results"))
