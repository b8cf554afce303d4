"""Main tables: right numbers, nothing stale or mixed, and safe in every format."""

import io

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from studies import outputs
from synthetic import rewrite, tabulated, write_score, write_scores

from stapo.core.files import AGAIN
from stapo.suite.analysis.artefacts import Artefacts, StaleScoreError
from stapo.suite.analysis.main_rendering import print_table, render, show_study, write_tables
from stapo.suite.analysis.main_table import AVERAGE
from stapo.suite.analysis.values import of_rows
from stapo.suite.study import parse_study

DECODING = "t1.0-p1.0"


def printed(table, width=200):
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=width))
    return stream.getvalue()


def test_the_best_of_each_column_is_bold_and_names_are_text(study, finished):
    table = tabulated(finished, study)
    for column in (*study.run.benchmarks, AVERAGE):
        values = {row.method: round(row.cells[column].value, 2) for row in table.rows}
        bold = {row.method for row in table.rows if column in row.best}
        assert bold == {name for name, value in values.items() if value == max(values.values())}
    assert "**" in render(table)
    assert r"G\_R&amp;P\|O &lt;b&gt;" in render(table)
    assert "G_R&P|O <b>" in printed(table)
    assert ["not shown" in printed(table, width) for width in (40, 80)] == [True, False]
    # Three averages; pass@1, 2, 4 of two benchmarks.
    assert len([*of_rows(table)]) == 5 * (3 + 2 * 3)


def test_all_that_is_missing_stale_or_mixed_is_refused_at_once(study, finished, tmp_path):
    files = [path for path in outputs(study, "score") if DECODING in path]
    with pytest.raises(StaleScoreError) as caught:
        write_tables(Artefacts(study, tmp_path / "elsewhere"), DECODING)
    assert str(caught.value).startswith("demo: no scores yet; make them with: snakemake ")
    (tmp_path / "elsewhere/results/demo/scores").mkdir(parents=True)
    with pytest.raises(StaleScoreError) as caught:
        write_tables(Artefacts(study, tmp_path / "elsewhere"), DECODING)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{len(files)} score files are missing, such as results/demo/scores/")
    write_score(finished, study, "tiny/base", "chain-2", fingerprint="old")
    write_score(finished, study, "tiny/stapo/seed0", "chain-2", engine="vllm 1 on B")
    (finished / files[2]).unlink()
    damaged = finished / files[-1]
    pq.write_table(pq.read_table(damaged).drop_columns(["verdict"]), damaged)
    with pytest.raises(StaleScoreError) as caught:
        write_tables(Artefacts(study, finished), DECODING)
    stale, missing, mixed, damage = str(caught.value).splitlines()
    assert "made by configuration old" in stale
    assert missing.endswith("missing; make them with: snakemake --configfile STUDY")
    assert "answered by vllm 1 on B, others by vllm 1 on A; evaluate all on the same, or" in mixed
    assert damage == f"{damaged}: not the columns of this version; {AGAIN}"
    assert not (finished / "results/demo/tables").exists()


def test_the_table_names_the_devices_that_a_study_allows(raw_study, study, finished):
    write_score(finished, study, "tiny/stapo/seed0", "chain-2", engine="vllm 1 on B")
    allowing = {"evaluation": raw_study["evaluation"] | {"devices": "mixed"}}
    text = render(tabulated(finished, parse_study(raw_study | allowing)))
    assert "Responses by vllm 1 on A and vllm 1 on B." in text


def test_a_study_that_compares_nothing_is_shown(raw_study, study, finished, monkeypatch, capsys):
    monkeypatch.chdir(finished)
    show_study(parse_study(raw_study | {"compare": None}))
    assert "JustRL" in capsys.readouterr().out


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
        return {"correct": right, "correct_with_verifier": right or flip}

    for path in tmp_path.rglob("*.parquet"):
        rewrite(path, judge)
    table = tabulated(tmp_path, study)
    lines = [*of_rows(table)]
    for row in table.rows:
        own = {
            (v["benchmark"], v["metric"]): v["value"] for v in lines if v["method"] == row.method
        }
        names = {"rule": "avg@N by the rules", "verifier": "avg@N with the verifier"}
        rule, verifier = (own[AVERAGE, name] for name in names.values())
        assert verifier == pytest.approx(rule + 100 * 3 / 80)
        assert row.cells[AVERAGE].value == pytest.approx(own[AVERAGE, names[counts]])
