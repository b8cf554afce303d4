"""The real benchmarks' rows: every known layout gives the same ones, anything else is refused."""

import json
import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stapo.evaluation import data as module
from stapo.evaluation.data import DATA_DIR, normalise
from stapo.evaluation.task import INSTRUCTION, asked_of, benchmark_rows
from stapo.study.rows import checksum
from stapo.tasks import benchmark_definitions

ROWS = [{"question": "What is 1 + 1?", "answer": "2"}, {"question": "And 2?", "answer": r"\frac12"}]
REAL = [n for n, d in benchmark_definitions().items() if "hub" in d["metadata"]]
LAYOUTS: dict[str, Any] = {
    "MATH-500": lambda q, a: {"problem": q, "solution": f"so {a}", "answer": a, "level": 1},
    "aime24": lambda q, a: {"id": 1, "problem": q, "solution": rf"\boxed{{{a}}}", "url": "x"},
    "amc23": lambda q, a: {"question": f" {q}\n", "answer": a},
    "olympiadbench": lambda q, a: {"question": q, "final_answer": [a], "answer": None},
    "JustRL": lambda q, a: {
        "prompt": [{"content": q, "role": "user"}],
        "reward_model": {"ground_truth": a, "style": "rule"},
    },
}


def source(**changes: Any) -> dict[str, Any]:
    return {
        "hub": "someone/Some-Set",
        "revision": "main",
        "split": "test",
        "names": ["SomeSet"],
        "rows": 2,
        "sha256": checksum(ROWS),
        **changes,
    }


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "name", ["Some-Set.parquet", "someset.jsonl", "someone/some-set/a/0.parquet"]
)
def test_every_layout_gives_the_same_rows(tmp_path, monkeypatch, layout, name):
    rows = [LAYOUTS[layout](row["question"], row["answer"]) for row in ROWS]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv(DATA_DIR, str(tmp_path))
    assert benchmark_rows(source()) == ROWS


def test_from_the_hub_with_its_revision(monkeypatch):
    asked = {}

    def load(name: str, **kwargs: Any) -> list[dict[str, Any]]:
        asked.update(name=name, **kwargs)
        return ROWS

    monkeypatch.delenv(DATA_DIR, raising=False)
    monkeypatch.setattr(module, "load_dataset", load)
    assert benchmark_rows(source()) == ROWS
    assert asked == {"name": "someone/Some-Set", "revision": "main", "split": "test"}


def test_other_rows_are_refused_with_what_was_expected_and_found(tmp_path, monkeypatch):
    monkeypatch.setenv(DATA_DIR, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"STAPO_DATA_DIR.*SomeSet.*someone/Some-Set"):
        benchmark_rows(source())
    (tmp_path / "someset.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with pytest.raises(ValueError, match="expected 3 rows, found 2"):
        benchmark_rows(source(rows=3))
    with pytest.raises(ValueError, match=f"SHA-256 {'0' * 64}, found {checksum(ROWS)}"):
        benchmark_rows(source(sha256="0" * 64))
    with pytest.raises(ValueError, match="row 7: no question or no answer in columns text"):
        normalise({"text": "x"}, "row 7")
    with pytest.raises(ValueError, match="no question or no answer"):
        normalise({"problem": "x", "solution": "a proof"}, "row 1")


def test_the_checksum_ignores_white_space_and_nothing_else():
    spaced = [{"question": "What  is 1 +\n1?", "answer": "2"}, ROWS[1]]
    assert checksum(spaced) == checksum(ROWS)
    assert checksum(ROWS[::-1]) != checksum(ROWS)


@pytest.mark.skipif(DATA_DIR not in os.environ, reason=f"{DATA_DIR} names no directory with rows")
@pytest.mark.parametrize("name", REAL)
def test_the_real_rows_are_those_of_the_task(name):
    definition = benchmark_definitions()[name]
    rows = benchmark_rows(definition["metadata"])
    counts = {"aime24": 30, "aime25": 30, "amc23": 40, "math500": 500, "minerva": 272}
    assert len(rows) == counts.get(name, 674)
    assert asked_of(definition, rows)[0] == (rows[0]["question"] + INSTRUCTION, rows[0]["answer"])
