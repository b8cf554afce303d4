"""`stapo preview`: what a selection of one's own drops among recorded tokens."""

import io
import re

import numpy as np
import pytest
from finished_study import HOSTILE
from rich.console import Console
from studies import outputs
from synthetic_tokens import drawn, population, write_tokens

from stapo.suite.operations.preview import preview
from stapo.suite.study import StudyError, parse_study

CODE = """
def broken(logps, entropies, advantages, mask):
    return 1 / 0
def rare(logps, entropies, advantages, mask, tau_p=0.01):
    return mask & ~((logps.exp() < tau_p) & (advantages.unsqueeze(1) < 0))
"""


def test_the_shares_are_those_of_all_tokens_and_examples_are_escaped(
    raw_study, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    raw_study["run"] |= {"methods": ["justrl"], "seeds": [0]}
    study = parse_study(raw_study)
    rng = np.random.default_rng(0)
    everything = population(rng, steps=2, length=10, slips=0.1)
    everything.loc[everything["probability"] < 0.01, "before"] = HOSTILE
    found = drawn(everything, rng, {"silenced": 60, "retained": 60, "other": 400})
    (path,) = outputs(study, "train", "tokens.parquet")
    write_tokens(tmp_path / path, found)
    (tmp_path / "mine.py").write_text(CODE)
    console = Console(file=(stream := io.StringIO()), width=80)
    run = raw_study["run"] | {"methods": []}
    untrained = parse_study(raw_study | {"run": run, "compare": None})
    with pytest.raises(StudyError, match="no recorded tokens"):
        preview(f"{tmp_path}/mine.py:rare", untrained, console)
    preview(f"{tmp_path}/mine.py:rare", study, console)
    said = stream.getvalue()
    gone = (found["probability"] < 0.01) & (found["advantage"] < 0)
    assert f"{gone.sum()} recorded tokens are dropped" in said
    (other,) = re.findall(r"A < 0, other +\d+ +([\d.]+) %", said)
    whole = everything[(everything["advantage"] < 0) & (everything["probability"] >= 0.002)]
    # Estimated from some 130 recorded tokens that stand for ten times as many.
    assert abs(float(other) - 100 * (whole["probability"] < 0.01).mean()) < 5
    assert re.search(r"A > 0, rare +\d+ +0 %", said)
    assert not {"\x1b", "\u202e", "\u200b"} & set(said)
    with pytest.raises(StudyError, match=r"^mine\.py:broken, line 3: ZeroDivisionError"):
        preview(f"{tmp_path}/mine.py:broken", study, console)
