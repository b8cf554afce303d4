"""`stapo compare`: by how much the verdicts of two score files or folders differ."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import WRONG, rewrite

from stapo.suite.analysis.compare import compare_scores
from stapo.suite.records.scores import write_score_file
from stapo.suite.study import StudyError


def written(path: Path, share: float, seed: int, problems: int = 40, **identity: Any) -> float:
    """Write a score file of four samples, its rows in any order; return its accuracy in percent."""
    rng = np.random.default_rng(seed)
    rows = [
        replace(WRONG, problem=p, sample=n, gold=str(p), correct=bool(rng.random() < share))
        for p in range(problems)
        for n in range(4)
    ]
    path.parent.mkdir(exist_ok=True)
    write_score_file(
        path, [rows[i] for i in rng.permutation(len(rows))], {"samples": 4, **identity}
    )
    return 100 * float(np.mean([row.correct for row in rows]))


def test_two_files_are_compared_problem_by_problem(tmp_path):
    first = written(tmp_path / "a.parquet", 0.3, 0)
    second = written(tmp_path / "b.parquet", 0.8, 1)
    found = compare_scores(tmp_path / "a.parquet", tmp_path / "b.parquet")
    (row,) = found.differences
    assert row.first.value == pytest.approx(first)
    assert row.difference.value == pytest.approx(second - first)
    assert row.difference.low < row.difference.value < row.difference.high
    assert row.p_value == row.p_holm < 0.001
    assert json.loads(json.dumps(asdict(found)))["differences"][0]["problems"] == 40


def test_folders_are_compared_on_the_benchmarks_that_both_have(tmp_path):
    for side in "ab":
        small = written(tmp_path / side / "small.parquet", 0.5, 0, problems=5)
        large = written(tmp_path / side / "large.parquet", 0.5, 1, problems=60)
    written(tmp_path / "a" / "alone.parquet", 0.5, 2)
    written(tmp_path / "a" / "small.parquet", 0.5, 0, problems=5, decoding="t0.7-p0.9")
    found = compare_scores(tmp_path / "a", tmp_path / "b")
    assert [row.benchmark for row in found.differences] == ["large", "small", "Avg"]
    assert found.differences[2].first.value == pytest.approx((small + large) / 2)
    assert all(row.difference.value == 0 and row.p_holm == 1 for row in found.differences)
    assert any("alone: not in both" in line for line in found.warnings)
    assert "they are of several decodings" in found.warnings


def test_verdicts_are_the_verifiers_where_both_have_the_same_one(tmp_path):
    for name, verifier in (("a", {"model": "x"}), ("b", {"model": "x"}), ("c", {})):
        share = written(tmp_path / f"{name}.parquet", 0.5, 0, verifier=verifier)
        # It accepts everything that the rules reject.
        rewrite(tmp_path / f"{name}.parquet", lambda row: {"correct_with_verifier": True})
    for other, accuracy, line in (("b", 100, "with the verifier"), ("c", share, "by the rules")):
        found = compare_scores(tmp_path / "a.parquet", tmp_path / f"{other}.parquet")
        assert found.differences[0].first.value == pytest.approx(accuracy)
        assert any(line in one for one in found.warnings)


def test_what_cannot_be_compared_is_a_line(tmp_path):
    written(tmp_path / "a.parquet", 0.5, 0)
    written(tmp_path / "b" / "b.parquet", 0.5, 0, problems=3)
    (tmp_path / "bad.parquet").write_text("{}")
    (tmp_path / "none").mkdir()
    (tmp_path / "study.yaml").touch()
    (tmp_path / "study").mkdir()
    written(tmp_path / "study" / "scores" / "c.parquet", 0.5, 0)
    for other, line in (
        ("bad.parquet", "no score file, or damaged"),
        ("none", "no score files"),
        ("missing", "no score files; name a folder"),
        ("study.yaml", "no score files; name a folder"),
        ("study", "such as .*scores$"),
        ("b", "no benchmark in common"),
    ):
        with pytest.raises(StudyError, match=line) as caught:
            compare_scores(tmp_path / "a.parquet", tmp_path / other)
        assert len(caught.value.errors) == 1
