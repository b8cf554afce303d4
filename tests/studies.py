"""Studies with values that nobody meant, as a strategy of Hypothesis, and the files of a study's stages."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from stapo.suite.jobs import jobs_of
from stapo.suite.study import Study, StudyError, read_study
from stapo.suite.study.reading import shipped

SHIPPED = [yaml.safe_load(shipped(name).read_text()) for name in ("smoke", "paper-v3", "marked")]
EQUAL = ("a-b", "a+b", "A.B", "a.b", "base", "Base", "verifier", "verifier.json", "avg")
PLAIN = ("1e3", "seed0", "step5", "main-a", "null", "010", "stapo")
NAMES = st.sampled_from(EQUAL + PLAIN) | st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9.+-]{0,12}\Z")
DIRTY = st.text(max_size=20) | st.sampled_from(
    ["", " ", "a\n\tb", "\x1b[31m", "\u202ex", "\ud800", "\0", "\x85", "\ufeff", "x" * 20_000]
)
"""Texts that are invalid in most places."""
NUMBERS = (None, True, -1, 0, 1, 7, 10**5000, 1e308, 0.5, 1e-300, "1e-300", "1e999", ".inf", "0x10")
ODD = st.sampled_from([*NUMBERS, [], {}]) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | DIRTY | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | DIRTY, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def changed_studies(draw: st.DrawFn) -> dict[str, Any]:
    """Shipped studies with up to three values replaced, or moved to another key."""
    raw = copy.deepcopy(draw(st.sampled_from(SHIPPED)))
    for _ in range(draw(st.integers(1, 3))):
        section: Any = raw
        while True:
            keys = list(section) if isinstance(section, dict) else range(len(section))
            key = draw(st.sampled_from(keys))
            inner = section[key]
            if not inner or not isinstance(inner, dict | list) or draw(st.booleans()):
                break
            section = inner
        if isinstance(section, list) or draw(st.booleans()):
            section[key] = draw(ODD)
        else:
            section[draw(NAMES | DIRTY) or f"{key}s"] = section.pop(key)
        if not raw:
            break
    return raw


def own_study(settings: str = "path: weights", **changes: Any) -> Study:
    """Return the smoke study with a model of these settings, from `own.yaml` in the working directory."""
    model = f"models: {{own: {{{settings}}}}}\nrun: {{models: [own]}}\n"
    Path("own.yaml").write_text(f"extends: smoke\nname: mine\n{model}")
    return read_study(Path("own.yaml"), changes=changes)


def lines_of(call: Callable[..., object], *given: Any, **named: Any) -> list[str]:
    """Return the lines of the error with which a call is refused."""
    with pytest.raises(StudyError) as error:
        call(*given, **named)
    return error.value.errors


def outputs(study: Study, stage: str, ending: str = "") -> list[str]:
    """Return the published files of a stage, or those with an ending."""
    found = [path for job in jobs_of(study).all(stage) for path in job.outputs]
    return [path for path in found if path.endswith(ending)]
