"""What `stapo check` prints of the methods, and its warnings."""

from io import StringIO

import pytest
from rich.console import Console

from stapo.operations.check import HEADINGS, method_rows, print_check
from stapo.repository import STUDIES
from stapo.study import read_study


def rows_of(name):
    study = read_study(STUDIES / f"{name}.yaml")
    return {row[0]: dict(zip(HEADINGS, row, strict=True)) for row in method_rows(study)}


def test_every_method_of_the_paper_has_its_numbers():
    rows = rows_of("paper")
    assert tuple(rows["stapo"].values()) == (
        "stapo", "silence_spurious", "0.002", "0.75", "candidates", "0.2 / 0.28", "10", "-", "token_mean",
        "current",
    )  # fmt: skip
    assert (rows["grpo"]["KL"], rows["grpo"]["clip"]) == ("0.04", "0.2 / 0.2")
    assert (rows["20-entropy"]["q"], rows["20-entropy"]["scope"]) == ("0.2", "mini-batch")


@pytest.mark.parametrize("name", ["ablation-v3", "ablation-v5", "sensitivity-v3", "sensitivity-v5"])
def test_an_ablation_compares_one_objective(name):
    """Whatever is not ablated is the same in every row: the audit found dual clip in some."""
    shared = ("clip", "dual clip", "KL", "aggregation")
    assert len({tuple(row[key] for key in shared) for row in rows_of(name).values()}) == 1


def test_a_narrow_terminal_hides_no_column():
    stream = StringIO()
    print_check(read_study(STUDIES / "sensitivity-v5.yaml"), Console(file=stream, width=40))
    shown = stream.getvalue()
    assert "…" not in shown
    assert "tau-2e-2: tau_p 2e-2: as STAPO (v4 and v5), but tau_p 0.02, dual_clip 10" in shown
