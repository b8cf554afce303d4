"""One checkpoint by two engines: the known difference, its interval, and what is refused."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from synthetic import write_score

from stapo.operations import engine_check as module
from stapo.operations.engine_check import compare_engines, print_engines
from stapo.records.scores import ScoreRow, identity_in, write_score_file
from stapo.study import StudyError, parse_study

DECODING = "t1.0-p1.0"
BASE = "tiny/base"
NAMES = ["chain-2", "linear-equation"]


@pytest.fixture
def sides(raw_study, tmp_path):
    """The base model of a study by Transformers and by vLLM; the scores are equal at first."""
    raw_study["run"] |= {"decodings": [DECODING], "benchmarks": NAMES}
    found = {}
    for backend, engine in (("hf", "transformers 5 on x"), ("vllm", "vllm 1 on x")):
        raw_study["evaluation"]["backend"] = backend
        study, root = parse_study(raw_study), tmp_path / backend
        for name in NAMES:
            write_score(root, study, BASE, name, engine=engine)
        found[backend] = root
    return found["hf"], found["vllm"]


def edit(root, change, name="chain-2", **identity):
    """Change the rows of a score file, and what it says of itself."""
    (path,) = root.rglob(f"{name}.parquet")
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    write_score_file(
        path, [ScoreRow(**row) for row in rows], {**identity_in(table.schema), **identity}
    )
    return rows


def keep(rows):
    pass


def test_the_known_difference_is_found_with_its_interval(sides):
    hf, vllm = sides
    flipped = 0

    def more(rows):
        nonlocal flipped
        for row in rows:
            if row["problem"] % 4 == 0 and not row["correct"]:
                row["correct"], flipped = True, flipped + 1

    rows = edit(vllm, more)
    found = {line.benchmark: line for line in compare_engines(hf, vllm)}
    assert list(found) == [*NAMES, "Avg"]
    line = found["chain-2"]
    assert line.difference.value == pytest.approx(flipped / len(rows))
    assert line.values[1] - line.values[0] == pytest.approx(line.difference.value)
    # By problem: the standard error of the mean of the paired differences, to the bootstrap's own 5 %.
    gains = np.zeros(20)
    for row, before in zip(
        sorted(rows, key=lambda r: (r["problem"], r["sample"])),
        sorted(edit(hf, keep), key=lambda r: (r["problem"], r["sample"])),
        strict=True,
    ):
        gains[row["problem"]] += (row["correct"] - before["correct"]) / 4
    width = 2 * 1.96 * gains.std() / np.sqrt(20)
    assert line.difference.high - line.difference.low == pytest.approx(width, rel=0.15)
    assert found["linear-equation"].difference.value == 0
    assert found["linear-equation"].within
    assert found["Avg"].difference.value == pytest.approx(line.difference.value / 2)


def test_equal_scores_pass_and_a_large_difference_does_not(sides):
    hf, vllm = sides
    with Console(record=True, width=120) as console:
        assert print_engines(compare_engines(hf, vllm), console)
    said = console.export_text()
    assert "3 of 3 intervals contain 0; no difference beyond chance" in said
    assert "Engine noise floor, Avg: 0.00 points" in said
    assert "warning" not in said
    edit(vllm, lambda rows: [row.update(correct=True) for row in rows])
    with Console(record=True, width=120) as console:
        assert not print_engines(compare_engines(hf, vllm), console)
    assert "the engines differ" in console.export_text()


def test_chance_alone_ends_in_a_failure_no_more_often_than_it_says(sides):
    """Fifty pairs of draws from the same rates: 5 % over all lines are 2.5 failures."""
    hf, _ = sides
    rng = np.random.default_rng(1)
    failures = 0
    for _ in range(50):
        pairs = []
        for name in ("a", "b", "c"):
            rates = rng.uniform(size=(1, 30, 1))
            draws = [(rng.uniform(size=(1, 30, 4)) < rates).astype(float) for _ in range(2)]
            (one,) = [s for s in module._scores(hf, print).values() if "chain" in str(s.path)]
            pairs.append(
                tuple(replace(one, identity={**one.identity, "benchmark": name}, correct=x) for x in draws)
            )  # fmt: skip
        lines = module._differences(BASE, DECODING, pairs, rng)
        failures += min(module.holm([line[-1].p_value for line in lines])) < 0.05
    # Binomial(50, 0.05) exceeds 8 in one of 10,000.
    assert failures <= 8


@pytest.mark.parametrize(
    ("change", "identity", "expected"),
    [
        (keep, {"asked": "0" * 16, "decoding": "t0.7-p0.9"}, "decoding t1.0-p1.0 instead of t0.7-p0.9"),
        (keep, {"asked": "0" * 16}, "another checkpoint, limit, seed or end tokens"),
        (keep, {"asked": "0" * 16, "benchmark": "chain-6"}, "the other side has no scores of chain-6"),
        (lambda rows: rows.pop(), {}, "rows are no multiple of 4 samples"),
        (lambda rows: [row.update(gold="8") for row in rows], {}, "different problems from"),
        (keep, {"samples": None}, "not a score file of this version"),
    ],
)  # fmt: skip
def test_what_was_asked_otherwise_is_refused(sides, change, identity, expected):
    hf, vllm = sides
    edit(vllm, change, **identity)
    with pytest.raises(StudyError, match=expected):
        compare_engines(hf, vllm)


def test_of_a_studys_results_the_scores_are_read_and_nothing_else(sides):
    hf, vllm = (root / "results" / "smoke" for root in sides)
    tokens = hf / "runs" / "tiny" / "stapo" / "seed0" / "tokens.parquet"
    tokens.parent.mkdir(parents=True)
    pq.write_table(pa.table({"token": [1]}), tokens)
    assert len(compare_engines(hf, vllm)) == 3


def test_one_engine_on_both_sides_is_a_warning(sides):
    hf, vllm = sides
    for name in NAMES:
        edit(vllm, keep, name, engine="transformers 5 on x\x1b[31m")
        edit(hf, keep, name, engine="transformers 5 on x\x1b[31m")
    with Console(record=True, width=120) as console:
        assert print_engines(compare_engines(hf, vllm), console)
    said = console.export_text()
    assert "warning: both sides are from the same engine" in said
    assert "\x1b" not in said


def test_single_files_are_compared_and_nothing_is_an_error(sides, tmp_path):
    hf, vllm = (next(root.rglob("chain-2.parquet")) for root in sides)
    assert [line.benchmark for line in compare_engines(hf, vllm)] == ["chain-2"]
    (tmp_path / "none").mkdir()
    with pytest.raises(StudyError, match="no scores"):
        compare_engines(hf, tmp_path / "none")
