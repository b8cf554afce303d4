"""Rules and verifier side by side: averages, flips and cut responses of every cell, in every format."""

import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic import write_score

from stapo.analysis.cells import read_scores
from stapo.analysis.columns import verdicts
from stapo.analysis.comparison import main_table
from stapo.analysis.main_tables import render
from stapo.analysis.rows import AVERAGE
from stapo.study import Checkpoint, parse_study

DECODING = "t1.0-p1.0"
FLIPS = 3


def judged(path, flips):
    """A verifier's word on every response that the rules reject; the first ones it accepts, one it cuts."""
    table = pq.read_table(path)
    rows, left = table.to_pylist(), flips
    for row in rows:
        if not row["correct"]:
            row["verifier"] = "accepted" if left > 0 else "rejected"
            row["correct_with_verifier"] = left > 0
            row["verifier_cut"] = left == flips
            left -= 1
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    return rows


@pytest.fixture(params=["rule", "verifier"])
def judged_study(request, raw_study, tmp_path):
    raw_study["run"] |= {"decodings": [DECODING], "benchmarks": ["chain-2", "linear-equation"]}
    raw_study["evaluation"] |= {"verifier": {"revision": "1" * 40}, "verdict": request.param}
    study = parse_study(raw_study)
    rows = {
        (checkpoint, benchmark): judged(write_score(tmp_path, study, checkpoint, benchmark), FLIPS)
        for checkpoint in study.checkpoints()
        for benchmark in study.run.benchmarks
    }
    return study, main_table(study, DECODING, read_scores(study, DECODING, tmp_path)), rows


def averages(table, row):
    """Avg of a row by the rules, and with the verifier."""
    shown = {column.heading: column for column in verdicts(table)}
    return shown["Rules"].value(row), shown["With verifier"].value(row)


def test_both_verdicts_are_shown_whichever_counts(judged_study):
    study, table, rows = judged_study
    assert table.verifier
    assert [row.method for row in table.rows] == ["base", *study.run.methods]
    for row in table.rows:
        method = () if row.method == "base" else (row.method, 0)
        checkpoint = Checkpoint("tiny", *method)
        for benchmark in study.run.benchmarks:
            own = rows[checkpoint, benchmark]
            right = np.mean([one["correct"] for one in own])
            cell = row.responses[benchmark]
            assert cell.rule == pytest.approx(right)
            assert cell.with_verifier == pytest.approx(right + FLIPS / len(own))
            assert cell.flips == FLIPS
            assert cell.judged == sum(not one["correct"] for one in own)
            assert cell.verifier_cut == 1
        both = dict(zip(("rule", "verifier"), averages(table, row), strict=True))
        rules = [row.responses[b].rule for b in study.run.benchmarks]
        assert both["rule"] == pytest.approx(100 * np.mean(rules))
        assert row.cells[AVERAGE].value == pytest.approx(both[study.evaluation.verdict])


def test_the_csv_has_both_averages_and_the_counts(judged_study):
    _, table, _ = judged_study
    lines = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    for row in table.rows:
        found = {
            (line["benchmark"], line["metric"]): line["value"]
            for line in lines
            if (line["size"], line["method"]) == (row.size, row.method)
        }
        rules, both = averages(table, row)
        assert float(found[AVERAGE, "avg@N by the rules"]) == pytest.approx(rules)
        assert float(found[AVERAGE, "avg@N with the verifier"]) == pytest.approx(both)
        cell = row.responses["chain-2"]
        assert found["chain-2", "flips"] == str(FLIPS)
        assert found["chain-2", "cut"] == "1"
        assert found["chain-2", "judged"] == str(cell.judged)
        assert float(found["chain-2", "avg@4 by the rules"]) == pytest.approx(100 * cell.rule)
