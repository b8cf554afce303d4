"""Whether the gold answers of rows can be the answer of a response at all.

A gold answer can if it is read again out of the shortest response with it, written as its reader wants. A
worked solution, an empty answer or one that is a box itself cannot: nothing would be learnt from such a
prompt, and no model could solve such a problem.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stapo.suite import domains, sandbox
from stapo.suite.answers import Setting, built_in, is_built_in
from stapo.suite.domains import Tasks
from stapo.suite.study.files import Row, read_rows
from stapo.suite.study.functions import reader_name
from stapo.suite.study.loader import Place, Problem
from stapo.suite.study.sources import DomainData, FileData
from stapo.suite.study.study import Study
from stapo.suite.text import normalised, shorten

MOST_LEFT_OUT = 0.1
"""Largest share of prompts that is left out; with more, the reward does not fit the data."""
TRIED = 50
"""Rows of tasks of reasoning-gym that are made to check them: of the first many, the rest mostly follow."""
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


def domain_problems(study: Study) -> Iterator[Problem]:
    """Yield what is wrong with tasks of reasoning-gym in what is run: names, settings, rows, answers."""
    asked: dict[Place, tuple[Tasks, int, Setting]] = {}
    for name in study.run.benchmarks:
        given = study.benchmarks[name]
        if given.reasoning_gym:
            at = "benchmarks", name, "reasoning_gym"
            asked[at] = given.reasoning_gym, given.rows or 0, study.answer(name)
    if isinstance(data := study.data, DomainData) and study.run.methods:
        reward = study.training.reward
        asked["data", "reasoning_gym"] = data.reasoning_gym, data.prompts, reward
    if asked and (reason := domains.missing()):
        yield next(iter(asked)), reason
        return
    for place, (tasks, count, setting) in asked.items():
        try:
            rows = domains.rows(tasks, min(count, TRIED), is_training=place[0] == "data")
        except ValueError as error:
            yield from ((place, line) for line in str(error).splitlines())
            continue
        faults = faulty_golds(setting, rows, is_rewarded=True) if is_built_in(setting) else {}
        if len(faults) > MOST_LEFT_OUT * len(rows):
            remedy = "training.reward" if place[0] == "data" else f"{place[0]}.{place[1]}.answer"
            yield place, f"{summary(faults, rows)}; change {remedy}"


def gold_problems(study: Study) -> Iterator[Problem]:
    """Yield the files of a study with gold answers that no response can have, or with trained problems.

    Few such prompts are left out when prompts are written. Problems of a benchmark are not: that would be
    another benchmark.
    """
    rows, faults = _training_rows(study)
    trained = {normalised(row["question"]) for row in rows}
    if len(faults) > MOST_LEFT_OUT * len(rows):
        yield ("data", "file"), f"{summary(faults, rows)}; change training.reward or the file"
    for name in study.run.benchmarks:
        given, setting = study.benchmarks[name], study.answer(name)
        if given.file:
            place, rows = ("benchmarks", name, "file"), read_rows(Path(given.file))
            faults = faulty_golds(setting, rows, is_rewarded=False) if is_built_in(setting) else {}
            if faults:
                remedy = f"change benchmarks.{name}.answer or the file"
                yield place, f"{summary(faults, rows)}; {remedy}"
            if shared := sum(normalised(row["question"]) in trained for row in rows):
                remedy = "remove them from one of the files"
                yield place, f"{shared} of its problems are training prompts; {remedy}"


def few_left_out(study: Study) -> list[str]:
    """Return a line about prompts of a file that will be left out, if there are some."""
    rows, faults = _training_rows(study)
    return [f"data.file: {summary(faults, rows)}; left out"] if faults else []


def _training_rows(study: Study) -> tuple[list[Row], dict[int, str]]:
    """Return the training prompts of a study's file, and by index why an answer can earn no reward."""
    if not isinstance(study.data, FileData) or not study.run.methods:
        return [], {}
    rows, reward = read_rows(Path(study.data.file)), study.training.reward
    return rows, faulty_golds(reward, rows, is_rewarded=True) if is_built_in(reward) else {}
