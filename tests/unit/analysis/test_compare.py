"""`stapo compare`: by how much the verdicts in files of any tool differ."""

import io
import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from stapo.analysis.compare import compare, print_comparison
from stapo.study import StudyError


def rows(share: float, seed: int, problems: int = 40, samples: int = 4) -> list:
    rng = np.random.default_rng(seed)
    return [
        {"problem": f"p{p}", "sample": n, "correct": bool(rng.random() < share)}
        for p in range(problems)
        for n in range(samples)
    ]


def written(path, records: list):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_two_files_are_compared_problem_by_problem(tmp_path):
    ours, theirs = rows(0.3, 0), rows(0.8, 1)
    # Parquet, in another order, with 1 and 0 for the verdicts, and with a problem of its own.
    others = [{**one, "correct": int(one["correct"])} for one in reversed(theirs)]
    others += [{"problem": "alone", "sample": n, "correct": 0} for n in range(4)]
    found = compare(written(tmp_path / "a.jsonl", ours), written(tmp_path / "b.parquet", others))
    (row,) = found.differences
    first, second = (100 * np.mean([one["correct"] for one in of]) for of in (ours, theirs))
    assert row.first.value == pytest.approx(first)
    assert row.difference.value == pytest.approx(second - first)
    assert row.difference.low < row.difference.value < row.difference.high
    assert row.p_value == row.p_holm < 0.001
    assert row.problems == 40
    assert any("1 of 41 problems are in B alone" in line for line in found.warnings)
    assert json.loads(json.dumps(asdict(found)))["differences"][0]["problems"] == 40
    print_comparison(found, Console(file=(stream := io.StringIO()), width=80))
    assert f"{row.difference.value:+.2f} [" in stream.getvalue()


def test_equal_files_do_not_differ_and_benchmarks_count_the_same(tmp_path):
    both = [
        {**one, "benchmark": name, "seed": seed}
        for name, number in (("small", 5), ("large", 60))
        for seed in (0, 1)
        for one in rows(0.5, seed, number)
    ]
    found = compare(*(written(tmp_path / f"{name}.jsonl", both) for name in "ab"))
    assert [row.benchmark for row in found.differences] == ["small", "large", "Avg"]
    small, large, average = (row.first.value for row in found.differences)
    assert average == pytest.approx((small + large) / 2)
    assert all(row.difference.value == 0 and row.p_holm == 1 for row in found.differences)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ['{"problem": "a", "correct": 1}', "no json"],
            ["bad.jsonl: not JSON lines or Parquet, or damaged: JSON"],
        ),
        (['{"problem": "a"}'], ["bad.jsonl: no column correct"]),
        (['{"problem": "a", "correct": "yes"}'], ["row 1: no problem, or its `correct` is not"]),
        (
            ['{"problem": "a", "correct": true}'] * 2,
            ["row 2: this sample of this problem was given before"],
        ),
        (
            ['{"problem": "a", "correct": 1}', '{"problem": "b", "correct": 1, "sample": 3}'],
            ["problem 'a' of 'problems' lacks samples", "problem 'b' of 'problems' lacks samples"],
        ),
        ([], ["bad.jsonl: not JSON lines or Parquet, or damaged: Empty"]),
    ],
)
def test_every_fault_of_a_file_is_a_line(tmp_path, lines: list[str], expected: list[str]):
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(StudyError) as caught:
        compare(path, written(tmp_path / "good.jsonl", rows(0.5, 0)))
    assert len(caught.value.errors) == len(expected)
    assert all(part in line for part, line in zip(expected, caught.value.errors, strict=True))


def test_folders_and_files_without_a_common_problem_are_refused(tmp_path):
    ours = written(tmp_path / "a.jsonl", rows(0.5, 0))
    others = [{**one, "problem": f"other {one['problem']}"} for one in rows(0.5, 0)]
    with pytest.raises(StudyError, match="no problem in common"):
        compare(ours, written(tmp_path / "b.jsonl", others))
    with pytest.raises(StudyError, match="expected a file of verdicts"):
        compare(ours, tmp_path)
