"""Whether the gold answers of rows can be the answer of a response at all.

A gold answer can if it is read again out of the shortest response with it, written as its reader wants. A
worked solution, an empty answer or one that is a box itself cannot: nothing would be learnt from such a
prompt, and no model could solve such a problem.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stapo.suite import sandbox
from stapo.suite.answers import Setting, built_in, is_built_in
from stapo.suite.study.files import read_rows
from stapo.suite.study.functions import reader_name
from stapo.suite.study.loader import Problem
from stapo.suite.study.sources import FileData
from stapo.suite.study.study import Study
from stapo.suite.text import shorten

MOST_LEFT_OUT = 0.1
"""Largest share of prompts that is left out; with more, the reward does not fit the data."""
SHOWN = 30
"""Characters of an answer in a message."""
WORKED = re.compile(r"^####", re.MULTILINE)
"""Before the answer of GSM8K's worked solutions."""


def gold_fault(setting: Setting, answer: str, is_rewarded: bool) -> str | None:
    """Return why no response can have the answer of a row, None if one can.

    The training reward is stricter than evaluation: it reads a box only at the end of a response.
    """
    reader = built_in(setting)
    if reader.verifier == "python_function":
        return sandbox.gold_fault(answer)
    gold = reader.gold(answer)
    if not gold.strip():
        return "are empty"
    if WORKED.search(gold):
        return 'are worked solutions, to be read by {after: "####"}'
    response = reader.written(gold)
    is_right = (
        reader.is_right(gold, response) if is_rewarded else reader.read(gold, response) == gold
    )
    return None if is_right else f"cannot be read from a response by {reader_name(setting)}"


def faulty_golds(
    setting: Setting, rows: Sequence[Mapping[str, str]], is_rewarded: bool
) -> dict[int, str]:
    """Return the index of each row with an answer that no response can have, and why."""
    faults = {i: gold_fault(setting, row["answer"], is_rewarded) for i, row in enumerate(rows)}
    return {i: fault for i, fault in faults.items() if fault}


def summary(faults: Mapping[int, str], rows: Sequence[Mapping[str, str]]) -> str:
    """Return how many answers are faulty for each reason, with the first of them."""
    parts = []
    for fault in dict.fromkeys(faults.values()):
        at = [i for i, reason in faults.items() if reason == fault]
        first = ", ".join(f"{i + 1} ({shorten(rows[i]['answer'], SHOWN)!r})" for i in at[:3])
        parts.append(
            f"{len(at)} of {len(rows)} answers {fault}: row {first}{', …' * (len(at) > 3)}"
        )
    return "; ".join(parts)


def gold_problems(study: Study) -> Iterator[Problem]:
    """Yield the files of a study with gold answers that no response can have.

    Few such prompts are left out when prompts are written. Problems of a benchmark are not: that would be
    another benchmark.
    """
    reward = study.training.reward
    if isinstance(study.data, FileData) and study.run.methods and is_built_in(reward):
        rows = read_rows(Path(study.data.file))
        faults = faulty_golds(reward, rows, is_rewarded=True)
        if len(faults) > MOST_LEFT_OUT * len(rows):
            yield ("data", "file"), f"{summary(faults, rows)}; change training.reward or the file"
    for name in study.run.benchmarks:
        given, setting = study.benchmarks[name], study.answer(name)
        if given.file and is_built_in(setting):
            rows = read_rows(Path(given.file))
            if faults := faulty_golds(setting, rows, is_rewarded=False):
                remedy = f"change benchmarks.{name}.answer or the file"
                yield ("benchmarks", name, "file"), f"{summary(faults, rows)}; {remedy}"
