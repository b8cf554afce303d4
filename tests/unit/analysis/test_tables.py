"""Main tables: right numbers, nothing stale or mixed, and safe in every format."""

import csv
import io
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from studies import outputs
from synthetic import rewrite, tabulated, write_score, write_scores

from stapo import paths
from stapo.analysis.cells import StaleScoreError
from stapo.analysis.columns import verdicts
from stapo.analysis.main_tables import print_table, render, show_document, show_study, write_tables
from stapo.analysis.notes import headline_texts
from stapo.analysis.rows import AVERAGE
from stapo.analysis.selection import select
from stapo.files import write_json, write_jsonl
from stapo.study import parse_study

DECODING = "t1.0-p1.0"


def file_of(root, checkpoint, benchmark):
    at = {"study": "demo", "checkpoint": checkpoint, "benchmark": benchmark}
    return root / paths.SCORES.format(**at, decoding=DECODING)


def printed(table, width=200):
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=width))
    return stream.getvalue()


def test_values_are_the_means_of_the_files_and_the_best_is_bold(study, finished):
    table = tabulated(finished, study)
    assert [row.method for row in table.rows] == ["base", *study.run.methods]
    for row in table.rows:
        checkpoint = "tiny/base" if row.method == "base" else f"tiny/{row.method}/seed0"
        means = []
        for benchmark in study.run.benchmarks:
            scores = pq.read_table(file_of(finished, checkpoint, benchmark))
            means.append(100 * np.mean(scores["correct"].to_pylist()))
            cell = row.cells[benchmark]
            assert cell.value == pytest.approx(means[-1])
            assert cell.low < cell.value < cell.high
        assert row.cells[AVERAGE].value == pytest.approx(np.mean(means))
    for column in (*study.run.benchmarks, AVERAGE):
        values = {row.method: round(row.cells[column].value, 2) for row in table.rows}
        bold = {row.method for row in table.rows if column in row.best}
        assert bold == {name for name, value in values.items() if value == max(values.values())}
    assert "**" in render(table, "md")
    assert r"\textbf{" in render(table, "tex")
    assert any("1 training seed" in note for note in table.notes)


def test_answers_without_a_verdict_are_counted_by_cell_in_a_warning(study, finished):
    assert not any(note.startswith("Warning") for note in tabulated(finished, study).notes)
    failed = {(0, 0): "timeout", (0, 1): "timeout", (0, 2): "timeout", (1, 0): "crash"}
    rewrite(
        file_of(finished, "tiny/stapo/seed0", "chain-2"),
        lambda row: {"verdict": failed.get((row["problem"], row["sample"]), row["verdict"])},
    )
    table = tabulated(finished, study)
    (note,) = [note for note in table.notes if note.startswith("Warning")]
    assert "tiny stapo chain-2 3 timeouts, 1 crashes of 80" in note
    assert note in render(table, "md")


def test_all_that_is_missing_stale_or_mixed_is_refused_at_once(study, finished, tmp_path):
    files = [path for path in outputs(study, "score") if DECODING in path]
    with pytest.raises(StaleScoreError) as caught:
        write_tables(study, DECODING, tmp_path / "elsewhere")
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{len(files)} score files are missing, such as results/demo/scores/")
    write_score(finished, study, "tiny/base", "chain-2", fingerprint="old")
    other = {"processor": "z", "machine": "b", "packages": {"torch": "1"}}
    write_score(finished, study, "tiny/stapo/seed0", "chain-2", provenance=other)
    (finished / files[2]).unlink()
    with pytest.raises(StaleScoreError) as caught:
        write_tables(study, DECODING, finished)
    stale, missing, mixed = str(caught.value).splitlines()
    assert "made by configuration old" in stale
    assert "missing; run snakemake" in missing
    assert "processor z, others with a" in mixed
    assert not (finished / "results/demo/tables").exists()


def test_names_are_text_in_every_format(study, finished):
    table = tabulated(finished, study)
    assert r"G\_R&amp;P\|O &lt;b&gt;" in render(table, "md")
    assert r"G\_R\&P\textbar{}O \textless{}b\textgreater{}" in render(table, "tex")
    assert "G_R&P|O <b>" in printed(table)
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    # Three averages; pass@1, 2, 4 and majority@4 of two benchmarks.
    assert len(rows) == 5 * (3 + 2 * 4)
    assert {row["benchmark"] for row in rows} == {"chain-2", "linear-equation", "Avg"}
    assert (rows[0]["problems"], rows[0]["samples"]) == ("20", "4")
    title = "![x](//y.z) \u202eab\u200b\x1b[31m"
    table = replace(table, rows=[replace(row, title=title) for row in table.rows])
    for text in (render(table, "md"), render(table, "tex"), printed(table)):
        assert not {"\u202e", "\u200b", "\x1b"} & set(text)
        assert "u202eab" in text
    assert r"![x\](//y.z)" in render(table, "md")


def test_a_strongest_baseline_of_zero_gives_no_headline(study, finished):
    for checkpoint in study.checkpoints():
        for benchmark in study.run.benchmarks:
            rewrite(file_of(finished, checkpoint, benchmark), lambda row: {"correct": False})
    table = tabulated(finished, study)
    assert headline_texts(table)[0].startswith("No headline of STAPO")
    assert "No headline" in render(table, "md")


@pytest.mark.parametrize(("rule", "step"), [("last", 96), ("development", 64), (32, 32)])
def test_a_rule_chooses_the_checkpoint_and_the_first_of_equal_ones(rule, step):
    shares = {32: 0.4, 64: 0.6, 96: 0.6}
    assert select(rule, list(shares), shares) == step


@pytest.mark.parametrize("counts", ["rule", "verifier"])
def test_both_verdicts_are_shown_whichever_counts(raw_study, tmp_path, counts):
    """The verifier accepts the first sample of three problems, which the rules reject."""
    raw_study["run"] |= {"decodings": [DECODING], "benchmarks": ["chain-2", "linear-equation"]}
    raw_study["evaluation"] |= {"verifier": {"revision": "1" * 40}, "verdict": counts}
    study = parse_study(raw_study)
    write_scores(tmp_path, study)

    def judge(row):
        flip = row["problem"] < 3 and row["sample"] == 0
        right = row["correct"] and not flip
        said = "not_asked" if right else "accepted" if flip else "rejected"
        cut = flip and row["problem"] == 0
        return {"correct": right, "correct_with_verifier": right or flip, "verifier": said,
                "verifier_cut": cut}  # fmt: skip

    for path in tmp_path.rglob("*.parquet"):
        rewrite(path, judge)
    table = tabulated(tmp_path, study)
    shown = {column.heading: column for column in verdicts(table)}
    lines = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    for row in table.rows:
        for cell in row.responses.values():
            right = round(cell.mean("correct") * 80)
            assert cell.mean("correct_with_verifier") == pytest.approx((right + 3) / 80)
            assert (cell.flips, cell.judged, cell.cut) == (3, 80 - right, 1)
        rule, verifier = (shown[name].value(row) for name in ("Rules", "With verifier"))
        assert rule == pytest.approx(
            100 * np.mean([c.mean("correct") for c in row.responses.values()])
        )
        assert verifier == pytest.approx(rule + 100 * 3 / 80)
        assert row.cells[AVERAGE].value == pytest.approx(rule if counts == "rule" else verifier)
        own = {(one["benchmark"], one["metric"]): one["value"] for one in lines
               if one["method"] == row.method}  # fmt: skip
        assert float(own[AVERAGE, "avg@N by the rules"]) == pytest.approx(rule)
        assert float(own[AVERAGE, "avg@N with the verifier"]) == pytest.approx(verifier)
        judged = str(row.responses["chain-2"].judged)
        assert [own["chain-2", name] for name in ("flips", "judged", "cut")] == ["3", judged, "1"]


def test_methods_with_the_same_weights_are_named(raw_study, tmp_path, capsys, monkeypatch):
    raw_study["name"] = "demo"
    raw_study["run"] |= {
        "decodings": [DECODING], "benchmarks": ["chain-2"], "methods": ["20-entropy", "justrl", "stapo"],
        "seeds": [0, 1],
    }  # fmt: skip
    study = parse_study(raw_study)
    write_scores(tmp_path, study)

    def record(method, seed, weights, silenced=0):
        at = {"study": "demo", "size": "tiny", "method": method, "seed": seed}
        outputs = {"model/model.safetensors": weights, "metrics.jsonl": "its own"}
        write_json(tmp_path / paths.RUN_PROVENANCE.format(**at), {"outputs": outputs})
        steps = range(1, study.training.steps + 1)
        lines = [{"step": step, "num_silenced": silenced} for step in steps]
        write_jsonl(tmp_path / paths.METRICS.format(**at), lines)

    def notes():
        return [note for note in tabulated(tmp_path, study).notes if "same weights" in note]

    assert notes() == []
    for seed in (0, 1):
        for method, weights in (("20-entropy", "a"), ("justrl", "b"), ("stapo", "b")):
            record(method, seed, f"{weights}{seed}")
    about = "a difference between them is not one of the methods."
    expected = f"STAPO silenced no token: the same weights as JustRL; {about}"
    assert notes() == [f"tiny, training seeds 0, 1: {expected}"]
    record("stapo", 1, "c", silenced=1)
    assert notes() == [f"tiny, training seed 0: {expected}"]
    monkeypatch.chdir(tmp_path)
    show_study(study)
    assert "STAPO silenced no token" in capsys.readouterr().out
    assert f"tiny, training seed 0: {expected}" in show_document(study)["notes"]
    # Without the reason, only the weights are named.
    record("stapo", 0, "a0", silenced=1)
    assert notes() == [
        f"tiny, training seed 0: 20-Entropy and STAPO have the same weights; {about}"
    ]
