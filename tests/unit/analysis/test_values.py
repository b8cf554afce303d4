"""Tidy data: every number of the tables, one row each, the same in CSV and Parquet."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest
from studies import outputs
from synthetic import write_score

from stapo import paths
from stapo.analysis.cells import read_scores
from stapo.analysis.comparison import main_table
from stapo.analysis.values import SCHEMA, STRONGEST, write_values
from stapo.study import parse_study

DECODING = "t1.0-p1.0"


@pytest.fixture
def written(study, finished):
    return write_values(study, finished)


@pytest.fixture
def rows(written):
    return pq.read_table(written[1]).to_pylist()


def chosen(rows, **columns):
    found = [r for r in rows if all(r[key] == value for key, value in columns.items())]
    assert found
    return found


def test_both_files_hold_the_same_rows(written, study, finished):
    assert [str(path.relative_to(finished)) for path in written] == outputs(study, "evidence", "")[
        -3:-1
    ]
    table = pq.read_table(written[1])
    assert table.schema.equals(SCHEMA)
    with written[0].open() as stream:
        texts = list(csv.DictReader(stream))
    assert len(texts) == table.num_rows
    for text, row in zip(texts, table.to_pylist(), strict=True):
        assert list(text) == SCHEMA.names
        for name, value in row.items():
            if isinstance(value, float | int):
                assert float(text[name]) == value
            else:
                assert text[name] == (value or "")


def test_differences_have_both_p_values_and_a_reference(rows, study, finished):
    table = main_table(study, DECODING, read_scores(study, DECODING, finished))
    found = chosen(rows, metric="difference of avg@N", benchmark="Avg")
    assert [row["reference"] for row in found] == ["grpo", "20-entropy", "justrl"]
    for row, one in zip(found, table.comparisons, strict=True):
        assert row["method"] == "stapo"
        assert row["value"] == pytest.approx(100 * one.difference.value, abs=1e-6)
        assert (row["low"], row["high"]) == pytest.approx(
            (100 * one.difference.low, 100 * one.difference.high), abs=1e-6
        )
        assert row["p_value"] == pytest.approx(one.difference.p_value, abs=1e-6)
        assert row["p_holm"] == pytest.approx(one.adjusted_p, abs=1e-6)
        assert row["p_holm"] >= row["p_value"]
    mean, gain = table.headlines["stapo"].mean, table.headlines["stapo"].gains["tiny"]
    (overall,) = chosen(rows, metric="relative gain of avg@N", size=None)
    assert overall["reference"] == STRONGEST
    assert overall["value"] == pytest.approx(mean, abs=1e-6)
    (at,) = chosen(rows, metric="relative gain of avg@N", size="tiny")
    assert at["value"] == pytest.approx(gain, abs=1e-6)
    assert at["reference"] in ("grpo", "20-entropy", "justrl")


def test_each_checkpoint_has_its_own_accuracy(raw_study, tmp_path):
    raw_study["name"] = "demo"
    raw_study["run"] |= {"seeds": [0, 7], "decodings": [DECODING], "benchmarks": ["chain-2"]}
    raw_study["training"]["evaluate_every"] = raw_study["training"]["steps"] // 2
    study = parse_study(raw_study)
    for checkpoint, benchmark in study.cells(DECODING):
        write_score(tmp_path, study, checkpoint, benchmark)
    rows = pq.read_table(write_values(study, tmp_path)[1]).to_pylist()
    steps = study.training.steps
    found = chosen(rows, method="stapo", metric="avg@4", seed=7)
    assert [row["step"] for row in found] == [steps // 2, steps]
    path = paths.SCORES.format(
        study="demo", checkpoint="tiny/stapo/seed7", decoding=DECODING, benchmark="chain-2"
    )
    correct = pq.read_table(tmp_path / path)["correct"].to_pylist()
    assert found[-1]["value"] == pytest.approx(100 * np.mean(correct))
    assert found[-1]["low"] < found[-1]["value"] < found[-1]["high"]
    (base,) = chosen(rows, method="base", metric="avg@4", step=0)
    assert base["seed"] is None
    means = chosen(rows, method="stapo", metric="avg@4", step=None)
    assert len(means) == 1
    last = [chosen(rows, method="stapo", seed=s, step=steps)[0]["value"] for s in (0, 7)]
    assert means[0]["value"] == pytest.approx(np.mean(last), abs=1e-5)
