"""`stapo compare`: what differs between finished studies, and by how much; folders are somebody else's."""

import io
import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from synthetic import PROBLEMS, PROVENANCE, leave_out_raw_data, write_score

from stapo import paths
from stapo.publication.compare import compare, print_comparison
from stapo.records.responses import AnsweredProblem, write_responses
from stapo.study import StudyError, parse_study

DECODING = "t1.0-p1.0"


def finished(root, raw, **identity):
    """Write a folder as another machine may have published it; return it."""
    study = parse_study(raw)
    for checkpoint in study.checkpoints():
        for benchmark in study.run.benchmarks:
            write_score(root, study, checkpoint, benchmark, **identity)
            path = paths.COMPLETIONS.format(
                study=study.name, checkpoint=checkpoint, decoding=DECODING, benchmark=benchmark
            )
            n = study.benchmarks[benchmark].samples
            answered = [
                AnsweredProblem(i, f"q {i}", "7", ["x"] * n, [9] * n, [False] * n, ["e"])
                for i in range(PROBLEMS)
            ]
            write_responses(root / path, answered)
    folder = root / paths.RESULTS.format(study=study.name)
    about = {"study": study.model_dump(mode="json", exclude_none=True)}
    (folder / "provenance.json").write_text(json.dumps(about))
    (folder / "SHA256SUMS").write_text("")
    return folder


@pytest.fixture
def raw(raw_study):
    raw_study["name"] = "demo"
    raw_study["run"] |= {"decodings": [DECODING], "benchmarks": ["chain-2", "linear-equation"]}
    return raw_study


def rescored(folder, checkpoint, share, rng=0):
    """Make a share of a checkpoint's answers to chain-2 right."""
    path = folder / f"scores/{checkpoint}/{DECODING}/chain-2.parquet"
    table = pq.read_table(path)
    drawn = np.random.default_rng(rng).random(table.num_rows) < share
    at = table.schema.get_field_index("correct")
    pq.write_table(table.set_column(at, "correct", [drawn.tolist()]), path)


@pytest.fixture
def pair(raw, tmp_path):
    return finished(tmp_path / "a", raw), finished(tmp_path / "b", raw)


def test_a_copy_of_a_study_differs_in_nothing(pair):
    first, second = pair
    (found,) = compare([first, second])
    assert len(json.loads(json.dumps(asdict(found)))["differences"]) == 5 * 3
    assert not found.settings
    shown = {(row.difference.value, row.difference.low, row.p_holm) for row in found.differences}
    assert shown == {(0, 0, 1)}
    assert [line for line in found.warnings if "one training seed" not in line] == []
    assert len(compare([first, second, second])) == 2


def test_a_difference_is_paired_and_has_the_averages_of_both_studies(pair):
    for folder, share in zip(pair, (0.2, 1.0), strict=True):
        rescored(folder, "tiny/stapo/seed0", share)
    (found,) = compare(pair)
    rows = {row.benchmark: row for row in found.differences if row.method == "stapo"}
    row = rows["chain-2"]
    assert row.second.value == 100
    assert 5 < row.first.value < 40
    assert row.difference.value == pytest.approx(row.second.value - row.first.value)
    assert row.difference.low < row.difference.value
    assert row.p_value == pytest.approx(1 / 10_001, abs=1e-3)
    assert row.p_holm == pytest.approx(15 * row.p_value)
    assert rows["Avg"].difference.value == pytest.approx(row.difference.value / 2)
    assert rows["linear-equation"].difference.value == 0
    assert "2 of 15 accuracies differ" in found.summary[0]
    assert any(line.startswith("tiny STAPO") and "Avg" in line for line in found.summary)


def test_other_problems_are_left_out(pair):
    for path in (pair[1] / "completions").rglob("chain-2.jsonl"):
        path.write_text(path.read_text().replace('"q 3', '"another'))
    (found,) = compare(pair)
    numbers = {row.benchmark: row.problems for row in found.differences}
    assert numbers == {"chain-2": 19, "linear-equation": 20, "Avg": 39}
    assert "chain-2: 1 of 20 problems are in A alone; left out" in found.warnings


def test_settings_that_differ_are_named(raw, tmp_path):
    first = finished(tmp_path / "a", raw)
    raw["training"]["learning_rate"] = 0.5
    raw["methods"] = {"stapo": {"tau_p": 0.25}}
    raw["decodings"]["unused"] = {"temperature": 0.1, "top_p": 1.0}
    raw["run"] |= {"methods": ["justrl", "stapo"], "benchmarks": ["chain-2"]}
    other = {**PROVENANCE, "packages": {"torch": "2"}}
    second = finished(tmp_path / "b", raw, provenance=other, engine="vllm 1")
    (found,) = compare([first, second])
    places = {place: (one, two) for place, one, two in found.settings}
    assert places["methods.stapo.selection_args.tau_p"] == (0.002, 0.25)
    assert places["training.learning_rate"][1] == 0.5
    assert places["run.methods"][1] == ["justrl", "stapo"]
    assert not any("unused" in place or place == "name" for place in places)
    compared = {(row.method, row.benchmark) for row in found.differences}
    assert compared == {(method, "chain-2") for method in ("base", "justrl", "stapo")}
    assert "made with different torch: A 1; B 2" in found.warnings
    assert "made with different engine: A None; B vllm 1" in found.warnings
    print_comparison(found, Console(file=(stream := io.StringIO()), width=80))
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_all_errors_are_said_at_once(raw, tmp_path):
    good, bad, summary = (finished(tmp_path / name, raw) for name in "abc")
    scores = sorted((bad / "scores").rglob("*.parquet"))
    scores[0].write_bytes(scores[1].read_bytes())
    scores[2].unlink()
    leave_out_raw_data(summary)
    with pytest.raises(StudyError) as caught:
        compare([good, bad, summary, tmp_path / "nowhere"])
    text = "\n".join(caught.value.errors)
    stale = "results/demo/scores/tiny/20-entropy/seed0/t1.0-p1.0/chain-2.parquet: made by"
    missing = f"{summary}: without its raw data; the scores are needed to compare"
    for part in (f"{bad}: {stale}", "missing; run snakemake", missing, "no results folder"):
        assert part in text
    with pytest.raises(StudyError, match="for example: stapo compare"):
        compare([good])


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
    (found,) = compare(
        [written(tmp_path / "a.jsonl", ours), written(tmp_path / "b.parquet", others)]
    )
    (row,) = found.differences
    first, second = (100 * np.mean([one["correct"] for one in of]) for of in (ours, theirs))
    assert row.first.value == pytest.approx(first)
    assert row.difference.value == pytest.approx(second - first)
    assert row.difference.low < row.difference.value < row.difference.high
    assert row.p_value == row.p_holm < 0.001
    assert row.problems == 40
    assert any("1 of 41 problems are in B alone" in line for line in found.warnings)


def test_equal_files_do_not_differ_and_benchmarks_count_the_same(tmp_path):
    both = [
        {**one, "benchmark": name, "seed": seed}
        for name, number in (("small", 5), ("large", 60))
        for seed in (0, 1)
        for one in rows(0.5, seed, number)
    ]
    (found,) = compare([written(tmp_path / f"{name}.jsonl", both) for name in "ab"])
    assert [row.benchmark for row in found.differences] == ["small", "large", "Avg"]
    small, large, average = (row.first.value for row in found.differences)
    assert average == pytest.approx((small + large) / 2)
    assert all(row.difference.value == 0 and row.p_holm == 1 for row in found.differences)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ['{"problem": "a", "correct": 1}', "no json"],
            ["bad.jsonl: not jsonl, or damaged: JSON parse"],
        ),
        (['{"problem": "a"}'], ["bad.jsonl: no column correct"]),
        (['{"problem": "a", "correct": "yes"}'], ["row 1: no problem, or its `correct` is not"]),
        (['{"problem": "a", "correct": true, "sample": "x"}'], ["column sample: expected whole"]),
        (['{"problem": "a", "correct": true}'] * 2, ["row 2: sample 0 of problem 'a' was given"]),
        (
            ['{"problem": "a", "correct": 1}', '{"problem": "b", "correct": 1, "sample": 3}'],
            ["problem 'b' of 'problems' has 1 responses, or other"],
        ),
        ([], ["bad.jsonl: not jsonl, or damaged: Empty JSON file"]),
    ],
)
def test_every_fault_of_a_file_is_a_line(tmp_path, lines: list[str], expected: list[str]):
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(StudyError) as caught:
        compare([path, written(tmp_path / "good.jsonl", rows(0.5, 0))])
    assert len(caught.value.errors) == len(expected)
    assert all(part in line for part, line in zip(expected, caught.value.errors, strict=True))


def test_files_without_a_common_problem_are_refused(tmp_path):
    others = [{**one, "problem": f"other {one['problem']}"} for one in rows(0.5, 0)]
    with pytest.raises(StudyError, match="no problem in common"):
        compare(
            [written(tmp_path / "a.jsonl", rows(0.5, 0)), written(tmp_path / "b.jsonl", others)]
        )
