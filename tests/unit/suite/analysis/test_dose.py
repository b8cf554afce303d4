"""The dose of a method: shares of updates and tokens from known metrics."""

import pytest

from stapo.core.files import write_jsonl
from stapo.suite import paths
from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.tables.dose import dose
from stapo.suite.study import parse_study


def test_a_method_acts_where_it_drops_or_touches_a_token(raw_study, tmp_path):
    raw_study["run"] |= {"methods": ["stapo"], "seeds": [0]}
    raw_study["training"]["steps"] = 10
    study = parse_study(raw_study)
    (run,) = study.runs()
    records = []
    for step in range(10):
        line = {"step": step + 1, "silenced_fraction": 0.001 * (step < 4)}
        line["kept_fraction"] = 1 - line["silenced_fraction"]
        line |= {"touched_fraction": 0.02 * (step < 6), "touched_weight": 0.5 * (step < 6)}
        records.append(line)
    write_jsonl(tmp_path / paths.METRICS.format(study=study.name, **run._asdict()), records)
    found = dose(Artefacts(study, tmp_path), run)
    assert [*found.values()] == pytest.approx([60, 0.04, 0.04, 1.2, 30])
