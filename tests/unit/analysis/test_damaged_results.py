"""Damaged scores, metrics, figures and responses end with path, cause and remedy, one line each."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stapo.analysis.cells import StaleScoreError, read_scores
from stapo.analysis.draw import write_figure
from stapo.analysis.report import render_report
from stapo.files import AGAIN, DamagedFileError

CELL = "results/demo/scores/tiny/base/t1.0-p1.0/chain-2.parquet"
METRICS = "results/demo/runs/tiny/grpo/seed0/metrics.jsonl"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def foreign(path: Path) -> None:
    path.write_text("not what it should be\n" * 20)


def of(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    """Return a damage that changes the table of a parquet file."""
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def correct(table: pa.Table, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index("correct"), "correct", values)


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (cut, "truncated or corrupt ("),
        (foreign, "truncated or corrupt ("),
        (of(lambda t: t.drop_columns(["verdict"])), "no column verdict"),
        (of(lambda t: t.replace_schema_metadata(None)), "does not say what made it"),
        (
            of(lambda t: correct(t, pa.array([None, *t["correct"].to_pylist()[1:]]))),
            "column correct has missing values",
        ),
        (of(lambda t: correct(t, t["correct"].cast(pa.string()))), "column correct is of string"),
        (of(lambda t: pa.concat_tables([t.slice(1), t.slice(1, 1)])), "not 4 samples of every"),
        (of(lambda t: t.slice(0, 0)), "0 rows are no multiple"),
    ],
)
def test_a_damaged_score_is_one_line_with_cause_and_remedy(study, finished, damage, cause):
    damage(finished / CELL)
    (finished / CELL.replace("chain-2", "linear-equation")).unlink()
    with pytest.raises(StaleScoreError) as raised:
        read_scores(study, "t1.0-p1.0", finished)
    lines = str(raised.value).splitlines()
    own = [line for line in lines if line.startswith(f"{CELL}: {cause}")]
    assert own
    assert all(line.endswith(AGAIN) for line in own)
    # Every file that is damaged, at once.
    assert sum("missing; run snakemake" in line for line in lines) == 1


def test_fewer_problems_than_other_checkpoints_have_are_noticed(study, finished):
    table = pq.read_table(finished / CELL)
    problems = pa.compute.less(table["problem"], 19)
    pq.write_table(table.filter(problems), finished / CELL)
    with pytest.raises(StaleScoreError, match=r"76|80 rows, other checkpoints have"):
        read_scores(study, "t1.0-p1.0", finished)


def altered(old: str, new: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(path.read_text().replace(old, new, 1)) and None


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (cut, f"{METRICS}:96: truncated, the last line has no line end"),
        (foreign, f"{METRICS}:1: truncated or corrupt"),
        (Path.unlink, f"{METRICS}: missing; run snakemake"),
        (lambda path: path.write_bytes(b""), f"{METRICS}: not the steps 1 to 96"),
        (altered('"entropy"', '"entropx"'), f"{METRICS}: no number entropy in every step"),
        (altered('"entropy": 1.0', '"entropy": "much"'), "no number entropy in every step"),
    ],
)
def test_damaged_metrics_are_one_line(study, finished, damage, cause):
    damage(finished / METRICS)
    with pytest.raises(DamagedFileError) as raised:
        write_figure(study, "entropy", finished)
    (line,) = str(raised.value).splitlines()
    assert cause in line


def test_a_report_shows_nothing_damaged(study, finished):
    name = "results/demo/runs/tiny/grpo/seed0/tokens.parquet"
    cut(finished / name)
    with pytest.raises(DamagedFileError, match=name) as raised:
        render_report(study, finished)
    assert len(str(raised.value).splitlines()) == 1
