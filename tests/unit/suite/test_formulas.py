"""An edited formula is part of what determines the trainings of its methods, and of no others."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stapo.core.files import read_json
from stapo.core.methods import METHODS
from stapo.suite import formulas
from stapo.suite.formulas import CHECKSUMS, changed_formulas, checksums

S2T = (
    "silence_spurious", "silence_matched", "silence_spurious_negative",
    "silence_above_entropy", "silence_towards_entropy", "silence_in_updates",
)  # fmt: skip
"""It, and selections that call it."""


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Replace a text in a copy of the package of the objective, which is then the one that counts."""

    def forget() -> None:
        for name in ("checksums", "_tree", "_definitions", "_imports"):
            getattr(formulas, name).cache_clear()

    def edit(file: str, old: str, new: str) -> None:
        copy = tmp_path / "objective"
        shutil.copytree(formulas.OBJECTIVE, copy)
        text = (copy / file).read_text()
        assert old in text
        (copy / file).write_text(text.replace(old, new))
        monkeypatch.setattr(formulas, "OBJECTIVE", copy)
        forget()

    yield edit
    forget()


def methods_with_changes() -> set[str]:
    return {name for name, method in METHODS.items() if changed_formulas(method)}


def test_every_part_has_a_checksum_and_none_has_changed():
    assert read_json(CHECKSUMS).keys() == checksums().keys()
    assert methods_with_changes() == set()


@pytest.mark.parametrize(
    ("file", "old", "new", "selections"),
    [
        ("surrogates.py", "def sapo(", "@torch.no_grad()\ndef sapo(", ()),
        ("selection.py", ".double() < threshold", ".double() <= threshold", S2T),
        (
            "selection.py",
            "def spurious_threshold(",
            "@torch.no_grad()\ndef spurious_threshold(",
            (*S2T, "silence_high_entropy"),
        ),
    ],
    ids=["a surrogate", "a selection", "what two selections call"],
)
def test_an_edit_changes_the_methods_that_use_it(edited, file, old, new, selections):
    edited(file, old, new)
    users = {name for name, method in METHODS.items() if method.selection in selections}
    assert methods_with_changes() == (users or {"sapo"})


@pytest.mark.parametrize(
    ("old", "new"),
    [("def sapo(", "# A comment.\ndef sapo("), ('"""Return', '"""Give')],
    ids=["comment", "docstring"],
)
def test_words_change_nothing(edited, old, new):
    edited("surrogates.py", old, new)
    assert methods_with_changes() == set()
