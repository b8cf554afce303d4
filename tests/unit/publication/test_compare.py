"""`stapo compare`: what differs between finished studies, and by how much; folders are somebody else's."""

import io
import json
from dataclasses import asdict

import numpy as np
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
