"""Damaged scores and metrics end with path, cause and remedy, one line each."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stapo.analysis.artefacts import StaleScoreError, read_scores
from stapo.analysis.charts import write_figure
from stapo.files import AGAIN, DamagedFileError

CELL = "results/demo/scores/tiny/base/t1.0-p1.0/chain-2.parquet"
METRICS = "results/demo/runs/tiny/grpo/seed0/metrics.jsonl"


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda table: table.drop_columns(["verdict"]), "no column verdict"),
        (lambda table: pa.concat_tables([table.slice(1), table.slice(1, 1)]), "not 4 samples of"),
        (lambda table: table.slice(0, 0), "0 rows are no multiple"),
        (
            lambda table: table.filter(pa.compute.less(table["problem"], 19)),
            "other checkpoints have 76",
        ),
    ],
)
def test_a_damaged_score_is_one_line_with_cause_and_remedy(study, finished, damage, cause):
    pq.write_table(damage(pq.read_table(finished / CELL)), finished / CELL)
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
        (Path.unlink, f"{METRICS}: missing; run snakemake"),
        (lambda path: path.write_bytes(b""), f"{METRICS}: not the steps 1 to 96"),
        (
            lambda path: path.write_text(path.read_text().replace('"entropy": 1.0', '"x": 1', 1)),
            f"{METRICS}: no number entropy in every step",
        ),
    ],
)
def test_damaged_metrics_are_one_line(study, finished, damage, cause):
    damage(finished / METRICS)
    with pytest.raises(DamagedFileError) as raised:
        write_figure(study, "entropy", finished)
    (line,) = str(raised.value).splitlines()
    assert cause in line
