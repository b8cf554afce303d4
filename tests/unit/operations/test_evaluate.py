"""Checkpoints from anywhere into one table, and again without generating."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from replay import regrade
from stapo.files import read_json, read_jsonl, write_json
from stapo.models.tiny import build_tiny
from stapo.operations.evaluate import Asked, evaluate, faults
from stapo.provenance import checksums, write_sums
from stapo.records.responses import store
from stapo.study import StudyError, read_study
from stapo.study.sources import TinyModel

VALUES = ["results/all/tables/values.csv", "results/all/tables/values.parquet"]
ASKED = Asked(["chain-2"], ["t1.0-p1.0"], batch_size=200, max_response_tokens=12)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[int, Path]:
    """Steps of supervised training -> the model after them."""
    root = tmp_path_factory.mktemp("models")
    for steps in (1, 2, 3):
        settings = TinyModel(builder="tiny-arithmetic", supervised_steps=steps, hidden_size=32)
        build_tiny(settings, root / str(steps))
    return {steps: root / str(steps) for steps in (1, 2, 3)}


def copied(model: Path, path: str) -> str:
    shutil.copytree(model, path)
    return path


def published(model: Path, path: str) -> str:
    """A checkpoint with the record of a training, as the pipeline leaves it."""
    target = Path(copied(model, path))
    write_json(target.parent / "provenance.json", {"outputs": checksums([target], target.parent)})
    return path


def files(root: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def test_two_checkpoints_and_a_study_in_one_table(built, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    copied(built[1], "results/mine/models/tiny/base")
    published(built[2], "results/mine/runs/tiny/stapo/seed0/model")
    copied(built[3], "my_model")
    asked = Asked(
        ["chain-2", "chain-3"],
        ["t1.0-p1.0"],
        max_response_tokens=12,
        samples=1,
        limit=7,
        name="all",
    )
    tables = evaluate(["results/mine", "other one=my_model"], asked)
    names = [f"results/all/tables/main-t1.0-p1.0.{end}" for end in ("md", "tex", "csv")]
    assert [str(path) for path in tables] == [*names, *VALUES]
    values = pq.read_table(tables[4]).to_pylist()
    differences = [row for row in values if row["metric"] == "difference of avg@N"]
    assert [(row["size"], row["reference"]) for row in differences] == [
        (None, "mine-tiny-base"), (None, "mine-tiny-base"), (None, "mine-tiny-stapo-seed0")
    ]  # fmt: skip
    assert all(0 < row["p_value"] <= row["p_holm"] <= 1 for row in differences)
    text = tables[0].read_text()
    titles = ["| tiny | Base |", "| tiny | STAPO, seed 0 |", "|  | other one |"]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert "chain-3 avg@1" in text
    for shown in (text, tables[1].read_text(), " ".join(capsys.readouterr().out.split())):
        assert "Only the first problems of a benchmark: 7 of 100 of chain-2, 7 of" in shown
    with tables[2].open() as stream:
        lines = [line for line in csv.DictReader(stream) if line["benchmark"] == "chain-2"]
    assert {line["problems"] for line in lines} == {"7"}
    assert {line["method"] for line in lines} == {
        "mine-tiny-base", "mine-tiny-stapo-seed0", "other-one"
    }  # fmt: skip
    (compared,) = [text[text.index("- STAPO") : text.index("| Size | Checkpoint | Mean")]]
    found = compared.strip().splitlines()
    pairs = [line.partition(" points")[0].rpartition(" ")[0] for line in found]
    assert pairs == [
        "- STAPO, seed 0 minus Base", "- other one minus Base", "- other one minus STAPO, seed 0"
    ]  # fmt: skip
    assert len(list(Path("results/all/completions").rglob("*.jsonl"))) == 6
    answers = Path("results/all/completions/other-one/base/t1.0-p1.0/chain-2.jsonl")
    assert len(read_jsonl(answers)) == 7
    assert 0 <= regrade(answers, "chain-2") <= 1
    before = files("results")
    assert evaluate(["results/mine", "other one=my_model"], asked) == tables
    assert files("results").keys() == before.keys()
    assert all(path.read_bytes() == before[path] for path in tables)


def test_more_of_one_checkpoint_uses_its_responses(built, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = copied(built[1], "my_model")
    tables = evaluate([model], ASKED)
    first = files("results")
    assert "my-model" in tables[0].parts[1]
    assert "my_model" in capsys.readouterr().out
    (store,) = Path("work").rglob("chain-2-*.jsonl")
    before = store.read_bytes()
    assert len(read_jsonl(store)) == 400
    copied(built[2], "another")
    # Under another label, and beside another checkpoint, nothing is generated again.
    evaluate([f"mine={model}", "another"], ASKED)
    assert store.read_bytes() == before
    stores = {path for path in Path("work").rglob("chain-2-*.jsonl") if path != store}
    assert len(stores) == 1
    # Other weights under the same name are another checkpoint.
    shutil.rmtree(model)
    copied(built[3], model)
    evaluate([model], ASKED)
    assert len(list(Path("work").rglob("chain-2-*.jsonl"))) == 3
    # Only the first problems are another evaluation too.
    evaluate([model], Asked(["chain-2"], ["t1.0-p1.0"], "hf", 200, 12, limit=3))
    # None of these overwrote another.
    assert all(path.read_bytes() == content for path, content in first.items())
    assert len(list(Path("results").iterdir())) == 4


def test_a_named_folder_holds_one_evaluation(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, few = copied(built[1], "m"), {"max_response_tokens": 4, "name": "mine", "limit": 2}
    asked = Asked(["chain-2"], ["t1.0-p1.0"], **few)
    # A record without results is of an evaluation that was stopped early.
    write_json(Path("results/mine/evaluation.json"), {"fingerprint": "0", "limit": 1})
    evaluate([model], asked)
    before = files("results")
    with pytest.raises(
        StudyError, match=r"another evaluation \(seed differ\); choose another --name"
    ):
        evaluate([model], Asked(["chain-2"], ["t1.0-p1.0"], seed=5, **few))
    Path("results/mine/evaluation.json").unlink()
    with pytest.raises(StudyError, match="not of an evaluation; choose another --name"):
        evaluate([model], asked)
    del before[Path("results/mine/evaluation.json")]
    assert files("results") == before


def test_greedy_decoding_has_one_response(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = copied(built[1], "m")
    tables = []
    for seed in (1, 2):
        asked = Asked(["chain-2"], ["greedy"], max_response_tokens=12, limit=20, seed=seed)
        tables += evaluate([model], asked)[:2]
    assert "chain-2 avg@1" in tables[0].read_text()
    assert "greedy decoding" in tables[1].read_text()
    one, other = (read_jsonl(path) for path in Path("results").rglob("chain-2.jsonl"))
    assert [row["responses"] for row in one] == [row["responses"] for row in other]
    record = read_json(tables[0].parents[1] / "evaluation.json")
    assert record["benchmarks"] == {"chain-2": 1}


def test_the_table_names_checkpoints_with_the_same_weights(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("m", "n"):
        copied(built[1], name)
    text = evaluate(["one=m", "other=n"], replace(ASKED, samples=1, limit=3))[0].read_text()
    assert "| one |" in text
    assert "| other |" not in text
    assert "other: the same weights as one; shown once." in text


class Killed(BaseException):
    """Ends an evaluation as a kill does: nothing of ours handles it."""


def test_a_killed_evaluation_is_resumed(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for steps in (1, 2):
        copied(built[steps], str(steps))

    def asked(name: str) -> Asked:
        settings = {"samples": 1, "batch_size": 16, "max_response_tokens": 12, "limit": 60}
        return Asked(["chain-2"], ["t1.0-p1.0"], **settings, name=name)

    count = 0

    def kill_in_the_second(path, response):
        nonlocal count
        count += 1
        if count > 90:
            raise Killed
        store(path, response)

    with monkeypatch.context() as patch:
        patch.setattr("stapo.evaluation.generate.store", kill_in_the_second)
        with pytest.raises(Killed):
            evaluate(["a=1", "b=2"], asked("killed"))
    left = {path: path.read_bytes() for path in Path("work").rglob("chain-2-*.jsonl")}
    assert sorted(len(read_jsonl(path)) for path in left) == [30, 60]
    tables = evaluate(["a=1", "b=2"], asked("killed"))
    assert all(path.read_bytes().startswith(start) for path, start in left.items())
    shutil.rmtree("work")
    whole = evaluate(["a=1", "b=2"], asked("whole"))
    for one, other in zip(tables[:4], whole, strict=False):
        assert one.read_text().replace("killed", "whole") == other.read_text()


def test_every_error_is_said_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    asked = Asked(
        ["chain-9"], ["greedy", "hot"], "vllm", 0, 0, seed=-1, samples=0, limit=0, name="a b"
    )
    monkeypatch.setattr("stapo.operations.evaluate.find_spec", lambda name: None)
    with pytest.raises(StudyError) as said:
        evaluate(["nothing", "empty", " x=empty", "a=o/m", "a=o/n"], asked)
    starts = [
        "nothing: neither a directory nor a Hub model",
        "empty: no *.safetensors",
        " x=empty: a label has 1 to 40 characters",
        "empty: no *.safetensors",
        "a: a label of two checkpoints",
        "--benchmark: unknown name 'chain-9'; known: aime24",
        "--samples: expected a number from 1",
        "--limit: expected a number from 1",
        "--samples: greedy decoding has one response",
        "--decoding: greedy has one response",
        "--batch-size: vLLM forms its own batches",
        "--backend vllm: vLLM is not installed; run `make setup-gpu`",
        "--name: expected letters",
        "--batch-size: Input should be greater",
        "--max-response-tokens: Input should be greater",
        "--seed: Input should be greater",
        "--decoding: unknown name 'hot'; known: t1.0-p1.0, t0.7-p0.9, greedy",
    ]
    assert len(said.value.errors) == len(starts), said.value.errors
    for line, start in zip(said.value.errors, starts, strict=True):
        assert line.startswith(start)
    assert not Path("results").exists()
    # Fewer samples than a study allows, for a look.
    assert faults(Asked(["aime24"], ["greedy"])) == []
    assert faults(Asked(["aime24"], ["t1.0-p1.0"], samples=1)) == []
    assert faults(Asked(["aime24"], ["t9"], "sglang"))[0].startswith("--backend: Input should be")


def test_every_model_is_checked_before_anything_is_generated(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("good", "damaged", "bare", "strange", "untold", "odd", "short")
    paths = {name: Path(copied(built[1], name)) for name in names}
    for name in names[1:]:  # Otherwise they are the same model, which is shown once.
        (paths[name] / "notes.txt").write_text(name)
    write_sums(paths["damaged"])
    (paths["damaged"] / "generation_config.json").write_text("{}")
    (paths["bare"] / "config.json").unlink()
    (paths["strange"] / "config.json").write_text("{}")
    for file in paths["untold"].glob("tokenizer*"):
        file.unlink()
    (paths["odd"] / "tokenizer.json").write_text("{}")
    weights = paths["short"] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(StudyError) as said:
        evaluate([*names], ASKED)
    starts = [
        "damaged/generation_config.json: missing, truncated or corrupt",
        "bare: no config.json; give the directory of a whole checkpoint",
        "strange: config.json cannot be read (Unrecognized model",
        "untold: no tokenizer.json; give the directory",
        "odd: tokenizer cannot be read (",
        "short: model.safetensors cannot be read (",
    ]
    assert len(said.value.errors) == len(starts), said.value.errors
    for line, start in zip(said.value.errors, starts, strict=True):
        assert line.startswith(start)
    assert not Path("work").exists()
    assert not Path("results").exists()


def without_a_token(model: str, character: str) -> None:
    path = Path(model) / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    del tokenizer["model"]["vocab"][character]
    path.write_text(json.dumps(tokenizer))


def test_a_character_without_a_token_is_named_before_anything_is_generated(
    built, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    models = [copied(built[steps], f"m{steps}") for steps in (1, 2)]
    for model, character in zip(models, "?+", strict=True):
        without_a_token(model, character)
    with pytest.raises(StudyError) as said:
        evaluate(models, ASKED)
    first, second = said.value.errors
    assert first.startswith("m1, chain-2: the tokenizer has no token for '?' (in 'chain:")
    assert second.startswith("m2, chain-2: the tokenizer has no token for '+' (in 'chain:")
    assert not list(Path().rglob("*.parquet"))


def test_a_benchmark_from_a_file_of_a_study(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    own = "{own: {file: rows/q.jsonl, question: q, answer: a, samples: 2}}"
    study = f"extends: smoke\nname: mine\nbenchmarks: {own}\nrun: {{benchmarks: [own, chain-2]}}\n"
    (tmp_path / "mine.yaml").write_text(study)

    def results(answer: int) -> tuple[str, list[int], list[str]]:
        rows = [{"q": f"chain:{a}+1?", "a": a + 1} for a in range(7)] + [
            {"q": "chain:3+4?", "a": answer}
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "rows" / "q.jsonl").write_text(lines)
        beside = read_study(tmp_path / "mine.yaml")
        table, *_ = evaluate([str(built[1])], replace(ASKED, benchmarks=["own"], beside=beside))
        folder = Path(table).parents[1]
        (scores,) = folder.glob("scores/**/own.parquet")
        rows = pq.read_table(scores).to_pylist()
        return folder.name, [row["problem"] for row in rows], [row["gold"] for row in rows]

    name, problems, golds = results(7)
    assert sorted(problems) == sorted([*range(8)] * 2)
    other, _, changed = results(8)
    assert other != name, "another content is another evaluation"
    assert (golds.count("7"), changed.count("8")) == (4, 2)
    unknown = faults(replace(ASKED, benchmarks=["own"]))
    (line,) = [line for line in unknown if "unknown name 'own'" in line]
    known = ", ".join(ASKED.tasks())
    assert line.endswith(f"known: {known}; --study names the study of a benchmark from a file")
    beside = read_study(tmp_path / "mine.yaml")
    (line,) = faults(replace(ASKED, benchmarks=["other"], beside=beside))
    assert line.endswith(f"known: {known}, own")
