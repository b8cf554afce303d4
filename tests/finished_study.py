"""Writes a finished study of synthetic files in the real formats."""

from pathlib import Path

import numpy as np
from studies import outputs
from synthetic import write_scores
from synthetic_tokens import population, write_tokens

from stapo.core.files import write_jsonl
from stapo.suite.study import Study

HOSTILE = (
    "<script>alert(1)</script> [red]markup[/red] \x1b[31m \u202e\u200b 100% & _x_ {y} \\boxed{7} "
    "<img src=x onerror='document.title=1'> <b>bold</b> <a href='https://example.org'>link</a> <!--"
)


def finish(study: Study, tmp_path: Path) -> Path:
    """Write everything that a report reads but its figures."""
    write_scores(tmp_path, study)
    for i, metrics in enumerate(outputs(study, "train", "metrics.jsonl")):
        records = [
            {
                "step": step,
                "entropy": 1 / step + i,
                "reward": -1 + step / 50,
                "silenced_fraction": 1e-4 * (i == 3),
                "kept_fraction": 1 - 1e-4 * (i == 3),
                "touched_fraction": 1e-4 * (i == 3),
                "touched_weight": 1e-4 * (i == 3),
                "entropy_quantiles": {"0.5": 0.1, "0.8": 1.0},
            }
            for step in range(1, study.training.steps + 1)
        ]
        write_jsonl(tmp_path / metrics, records)
    tokens = population(np.random.default_rng(0), steps=2, length=10, slips=0.1)
    tokens.loc[tokens["kind"] != "other", ["token", "before"]] = HOSTILE
    for path in outputs(study, "train", "tokens.parquet"):
        write_tokens(tmp_path / path, tokens)
    return tmp_path
