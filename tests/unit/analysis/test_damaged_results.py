"""Damaged scores, metrics, figures and responses end with path, cause and remedy, one line each."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stapo.analysis.cells import StaleScoreError, read_scores
from stapo.analysis.charts import write_figure
from stapo.files import AGAIN, DamagedFileError

CELL = "results/demo/scores/tiny/base/t1.0-p1.0/chain-2.parquet"
METRICS = "results/demo/runs/tiny/grpo/seed0/metrics.jsonl"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def of(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    """Return a damage that changes the table of a parquet file."""
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def altered(old: str, new: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(path.read_text().replace(old, new, 1)) and None


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (cut, "truncated or corrupt ("),
        (of(lambda t: t.drop_columns(["verdict"])), "no column verdict"),
        (of(lambda t: t.replace_schema_metadata(None)), "does not say what made it"),
        (of(lambda t: pa.concat_tables([t.slice(1), t.slice(1, 1)])), "not 4 samples of every"),
        (of(lambda t: t.slice(0, 0)), "0 rows are no multiple"),
        (
            of(lambda t: t.filter(pa.compute.less(t["problem"], 19))),
            "rows, other checkpoints have 76",
        ),
    ],
)
def test_a_damaged_score_is_one_line_with_cause_and_remedy(study, finished, damage, cause):
    damage(finished / CELL)
    (finished / CELL.replace("chain-2", "linear-equation")).unlink()
    with pytest.raises(StaleScoreError) as raised:
        read_scores(study, "t1.0-p1.0", finished)
    lines = str(raised.value).splitlines()
    assert any(cause in line and line.endswith(AGAIN) for line in lines)
    # Every file that is damaged, at once.
    assert sum("missing; run snakemake" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (cut, f"{METRICS}:96: truncated, the last line has no line end"),
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
