"""Tables: right numbers, nothing stale or mixed, and safe in every format."""

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from studies import outputs
from synthetic import write_score

from stapo import paths
from stapo.analysis.cells import StaleScoreError, read_scores
from stapo.analysis.comparison import headline, main_table
from stapo.analysis.main_tables import print_table, render, write_tables
from stapo.analysis.notes import headline_texts, mark
from stapo.analysis.rows import AVERAGE
from stapo.reference import paper

DECODING = "t1.0-p1.0"


def test_values_are_the_means_of_the_files(study, finished):
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    assert [row.method for row in table.rows] == ["base", "grpo", "20-entropy", "justrl", "stapo"]
    for row in table.rows:
        checkpoint = "tiny/base" if row.method == "base" else f"tiny/{row.method}/seed0"
        means = []
        for benchmark in study.run.benchmarks:
            path = paths.SCORES.format(
                study="demo", checkpoint=checkpoint, decoding=DECODING, benchmark=benchmark
            )
            means.append(100 * np.mean(pq.read_table(finished / path)["correct"].to_pylist()))
            cell = row.cells[benchmark]
            assert cell.value == pytest.approx(means[-1])
            assert cell.low < cell.value < cell.high
        assert row.cells[AVERAGE].value == pytest.approx(np.mean(means))
    averages = {row.method: row.cells[AVERAGE].value for row in table.rows}
    strongest = max(("grpo", "20-entropy", "justrl"), key=averages.__getitem__)
    found = table.headlines["stapo"]
    assert found.baselines == {"tiny": strongest}
    assert found.mean == pytest.approx(100 * (averages["stapo"] / averages[strongest] - 1))
    assert found.interval.low < found.mean < found.interval.high
    assert [c.baseline for c in table.comparisons] == ["grpo", "20-entropy", "justrl"]
    gap = (averages["stapo"] - averages["grpo"]) / 100
    assert table.comparisons[0].difference.value == pytest.approx(gap)
    assert table.comparisons[0].difference.questions == pytest.approx(gap * 40)
    assert any("1 training seed" in note for note in table.notes)


def test_answers_without_a_verdict_are_counted_by_cell_in_a_warning(study, finished):
    path = finished / paths.SCORES.format(
        study="demo", checkpoint="tiny/stapo/seed0", decoding=DECODING, benchmark="chain-2"
    )
    clean = main_table(study, DECODING, read_scores(study, DECODING, finished))
    assert not any(note.startswith("Warning") for note in clean.notes)
    scores = pq.read_table(path)
    verdicts = ["timeout"] * 3 + ["crash"] + scores["verdict"].to_pylist()[4:]
    index = scores.schema.get_field_index("verdict")
    pq.write_table(scores.set_column(index, scores.schema.field(index), [verdicts]), path)
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    (note,) = [note for note in table.notes if note.startswith("Warning")]
    assert "tiny stapo chain-2 3 timeouts, 1 crashes of 80" in note
    assert note in render(table, "md")


def test_the_best_of_each_column_is_bold_and_ties_all(study, finished):
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    for column in (*study.run.benchmarks, AVERAGE):
        values = {row.method: round(row.cells[column].value, 2) for row in table.rows}
        bold = {row.method for row in table.rows if column in row.best}
        assert bold == {name for name, value in values.items() if value == max(values.values())}
    assert "**" in render(table, "md")
    assert r"\textbf{" in render(table, "tex")


def test_a_study_that_has_not_been_run_is_one_line(study, tmp_path, finished):
    with pytest.raises(StaleScoreError) as caught:
        write_tables(study, DECODING, tmp_path / "elsewhere")
    files = len([path for path in outputs(study, "score") if DECODING in path])
    lines = str(caught.value).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(
        f"{files} score files are missing, such as results/demo/scores/tiny/base"
    )
    write_score(finished, study, "tiny/base", "chain-2", fingerprint="old")
    for path in [path for path in outputs(study, "score") if DECODING in path][-4:]:
        (finished / path).unlink()
    with pytest.raises(
        StaleScoreError, match=r"(?s)made by configuration old.*\n4 score files are"
    ):
        write_tables(study, DECODING, finished)


def test_all_that_is_stale_or_mixed_is_refused_at_once(study, finished, raw_study):
    write_score(finished, study, "tiny/base", "chain-2", fingerprint="old")
    other = {"processor": "z", "machine": "b", "packages": {"torch": "1"}}
    write_score(finished, study, "tiny/stapo/seed0", "chain-2", provenance=other)
    missing = paths.SCORES.format(
        study="demo", checkpoint="tiny/grpo/seed0", decoding=DECODING, benchmark="chain-2"
    )
    (finished / missing).unlink()
    with pytest.raises(StaleScoreError) as caught:
        write_tables(study, DECODING, finished)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "made by configuration old" in lines[0]
    assert "missing; run snakemake" in lines[1]
    assert "processor z, others with a" in lines[2]
    assert not (finished / "results/demo/tables").exists()


def test_names_are_text_in_every_format(study, finished):
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    assert r"G\_R&amp;P\|O &lt;b&gt;" in render(table, "md")
    assert r"G\_R\&P\textbar{}O \textless{}b\textgreater{}" in render(table, "tex")
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    # Three averages; pass@1, 2, 4 and majority@4 of two benchmarks.
    rows = [row for row in rows if re.fullmatch(r"(avg|pass|majority)@[124N]", row["metric"])]
    assert len(rows) == 5 * (3 + 2 * 4)
    assert {row["benchmark"] for row in rows} == {"chain-2", "linear-equation", "Avg"}
    assert rows[0]["problems"] == "20"
    assert rows[0]["samples"] == "4"
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=160))
    assert "G_R&P|O <b>" in stream.getvalue()


def test_hidden_characters_and_images_in_a_title_are_shown_as_text(study, finished):
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    title = "![x](//y.z) \u202eab\u200b\x1b[31m"
    table = replace(table, rows=[replace(row, title=title) for row in table.rows])
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=200))
    shown = [render(table, suffix) for suffix in ("md", "tex")] + [stream.getvalue()]
    for text in shown:
        assert not {"\u202e", "\u200b", "\x1b"} & set(text)
        assert "u202eab" in text
    assert r"![x\](//y.z)" in shown[0]


def test_one_draw_of_problems_serves_every_row(study, finished):
    """Two rows with the same answers have the same interval, and no interval of a difference."""
    for benchmark in study.run.benchmarks:
        path = paths.SCORES.format(
            study="demo", checkpoint="tiny/{}/seed0", decoding=DECODING, benchmark=benchmark
        )
        theirs = pq.read_table(finished / path.format("justrl"))
        ours = pq.read_table(finished / path.format("stapo"))
        copied = theirs.replace_schema_metadata(ours.schema.metadata)
        pq.write_table(copied, finished / path.format("stapo"))
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    rows = {row.method: row for row in table.rows}
    assert rows["stapo"].cells == rows["justrl"].cells
    (same,) = [c for c in table.comparisons if c.baseline == "justrl"]
    found = same.difference
    assert (found.value, found.low, found.high, found.questions) == (0, 0, 0, 0)
    assert (found.detectable, found.p_value) == (0, 1)
    assert not rows["justrl"].marks


def test_a_strongest_baseline_of_zero_gives_no_headline(study, finished):
    assert headline({"tiny": {"stapo": 1.0, "grpo": 0.0}}, "stapo", ["grpo"]) is None
    gain = headline({"tiny": {"stapo": 1.0, "grpo": 0.5}}, "stapo", ["grpo"])
    assert gain.mean == pytest.approx(100)
    for checkpoint in study.checkpoints():
        for benchmark in study.run.benchmarks:
            path = finished / paths.SCORES.format(
                study="demo", checkpoint=checkpoint, decoding=DECODING, benchmark=benchmark
            )
            table = pq.read_table(path)
            none = pa.array([False] * len(table))
            column = table.schema.get_field_index("correct")
            pq.write_table(table.set_column(column, "correct", none), path)
    shown = main_table(study, DECODING, read_scores(study, DECODING, finished))
    assert headline_texts(shown)[0].startswith("No headline of STAPO")
    assert "No headline" in render(shown, "md")


def test_a_significant_gain_is_marked(study, finished):
    for benchmark in study.run.benchmarks:
        path = finished / paths.SCORES.format(
            study="demo", checkpoint="tiny/grpo/seed0", decoding=DECODING, benchmark=benchmark
        )
        table = pq.read_table(path)
        none = pa.array([False] * len(table))
        column = table.schema.get_field_index("correct")
        pq.write_table(table.set_column(column, "correct", none), path)
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    assert {row.method: row.marks for row in table.rows}["grpo"] == mark(0)
    assert not table.rows[0].marks  # The base model is not compared.
    marked = f"0.00{mark(0)}<br>[0.0, 0.0] |"
    (line,) = [text for text in render(table, "md").splitlines() if text.endswith(marked)]
    assert r"G\_R" in line
    assert r"0.00$^{\dagger}$" in render(table, "tex")


def test_numbers_and_marks_are_whole_in_80_columns(study, finished):
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    row = table.rows[0]
    samples = dict.fromkeys(paper()["benchmarks"], 4)
    cells = dict.fromkeys([*samples, AVERAGE], row.cells[AVERAGE])
    title = "A title whose 40 characters fold: a rest"
    row = replace(row, title=title, cells=cells, marks=mark(0) + mark(1))
    wide = replace(table, samples=samples, rows=[row], headlines={}, comparisons=[])
    stream = io.StringIO()
    print_table(wide, Console(file=stream, width=80))
    number = f"{cells[AVERAGE].value:.2f}"
    (line,) = [text for text in stream.getvalue().splitlines() if number in text]
    assert line.split()[-7:] == [number] * 6 + [number + mark(0) + mark(1)]
