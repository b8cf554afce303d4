"""Check that scores follow from the responses, and that the responses belong to their benchmark."""

import time
from collections.abc import Iterator
from dataclasses import replace

from stapo import paths
from stapo.evaluation.boxes import final_answer
from stapo.evaluation.grading import Grade, grade_all
from stapo.evaluation.scores import (
    Judgement,
    engines_of,
    gold_and_responses,
    refusal,
    score_rows,
    with_judgement,
)
from stapo.evaluation.task import are_rows_of
from stapo.files import DamagedFileError
from stapo.publication.folder import Results
from stapo.publication.vocabulary import Vocabulary, vocabulary
from stapo.records.responses import AnsweredProblem
from stapo.records.scores import ScoreRow, read_identity, read_score_file, rows_of
from stapo.records.verdicts import OPINIONS
from stapo.study.identity import score_identity

SLOW_SECONDS, SLOW_SHARE, ANSWER_SECONDS = 60.0, 0.005, 5.0
"""Slow answers may take one minute in total, plus the allowed timeouts: 5 s for one answer of 200."""
USUAL_SECONDS = 0.02
"""Grading time of an ordinary answer on a busy machine."""
CHUNK = 100
"""Number of answers that are graded between two checks of the time."""
SPECIAL_SHARE = 0.2
"""Maximum share of responses with special tokens inside, which count as tokens but are not in the text."""
LONG_CHARACTERS = 1000
"""Characters from which equal responses are not a coincidence, for any stated number of tokens."""


class Overdue(Exception):
    """Grading takes too long."""


class Grader:
    """Grades equal answers once, and stops if a folder is made so that grading takes days.

    Args:
        responses: number of responses in the folder.
    """

    def __init__(self, responses: int) -> None:
        self.known: dict[tuple[str, str | None], Grade] = {}
        slow = SLOW_SECONDS + SLOW_SHARE * ANSWER_SECONDS * responses
        self.left = slow + USUAL_SECONDS * responses

    def grades(self, pairs: list[tuple[str, str]]) -> list[Grade]:
        """Return the grades of gold answers and responses.

        Raises:
            Overdue: the answers of this folder take longer than any honest answers.
        """
        keys = [(gold, final_answer(gold, response)) for gold, response in pairs]
        new = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in self.known}
        items = list(new.items())
        for start in range(0, len(items), CHUNK):
            if self.left < 0:
                raise Overdue
            began, part = time.monotonic(), items[start : start + CHUNK]
            graded = grade_all([pair for _, pair in part])
            self.known.update((key, grade) for (key, _), grade in zip(part, graded, strict=True))
            self.left -= time.monotonic() - began
        return [self.known[key] for key in keys]


def score_errors(results: Results) -> Iterator[str]:
    """Yield a line for each cell with incorrect responses or scores."""
    cells = list(results.cells())
    study = results.study
    grader = Grader(sum(results.samples(b) * results.study.problems(b) for _, _, b in cells))
    words = {c: vocabulary(results, c) for c in study.checkpoints()}
    for checkpoint, decoding, benchmark in cells:
        at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
        scores = paths.SCORES.format(**at, benchmark=benchmark)
        responses = paths.COMPLETIONS.format(**at, benchmark=benchmark)
        try:
            problems = results.responses(checkpoint, decoding, benchmark)
            fault = _response_fault(results, benchmark, problems, words[checkpoint])
            where = responses if fault else scores
            fault = fault or _score_fault(results, scores, problems, grader)
        except Overdue:
            yield f"{responses}: grading takes longer than any honest answers; the rest is not checked"
            return
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            where, fault = responses, f"or its scores are unreadable: {error}"
        if fault:
            yield f"{where}: {fault}"


def identity_errors(results: Results) -> Iterator[str]:
    """Yield a line for each score file with incorrect metadata."""
    study = results.study
    for checkpoint, decoding, benchmark in results.cells():
        path = paths.SCORES.format(
            study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark
        )
        stated = dict(read_identity(results.root / path))
        expected = score_identity(study, checkpoint, decoding, benchmark)
        for key in sorted((stated.keys() | expected.keys()) - {"provenance", "engine", "differs_from_math_verify"}):
            if stated.get(key) != expected.get(key):
                yield f"{path}: its {key} is {stated.get(key)!r}, expected {expected.get(key)!r}"
        engines = engines_of(results.responses(checkpoint, decoding, benchmark))
        if engines != [stated.get("engine")]:
            yield f"{path}: its engine is {stated.get('engine')!r}, the responses' {engines}"
        package = {"hf": "transformers ", "vllm": "vllm "}[study.evaluation.backend]
        if not str(stated.get("engine")).startswith(package):
            yield f"{path}: its engine is {stated.get('engine')!r}, the study's {package.strip()}"


def _response_fault(
    results: Results, benchmark: str, problems: list[AnsweredProblem], words: Vocabulary | None
) -> str:
    study = results.study
    rows, limit = study.problems(benchmark), study.evaluation.max_response_tokens
    if [problem.problem for problem in problems] != list(range(rows)):
        return f"not the {rows} problems of {benchmark} in their order"
    if not are_rows_of(study.task(benchmark), problems):
        return f"questions or golds are not those of {benchmark}"
    exact = study.evaluation.backend == "hf"
    beyond = 0
    for problem in problems:
        for response in problem.samples():
            tokens, truncated = response.num_tokens, response.truncated
            place = f"problem {problem.problem}: {tokens} tokens"
            if not 1 <= tokens <= limit:
                return f"{place}, the study allows 1 to {limit}"
            # vLLM also stops at the end of the model's context.
            if truncated and exact and tokens != limit:
                return f"{place} but marked as truncated at {limit}"
            least, most = words.bounds(response.text, truncated) if words else (0, limit)
            if tokens < least:
                return f"{place}, its text has at least {least}"
            beyond += tokens > most
    if beyond > SPECIAL_SHARE * sum(len(problem.responses) for problem in problems):
        return f"{beyond} responses have more tokens than their texts"
    return refusal(problems) or _copies_of_long_texts(problems)


def _copies_of_long_texts(problems: list[AnsweredProblem]) -> str:
    """Return an error if too many long texts are copies, without using the stated numbers of tokens."""
    by_length = [replace(p, num_tokens=[len(t) // 4 for t in p.responses]) for p in problems]
    long = any(len(t) >= LONG_CHARACTERS for p in problems for t in p.responses)
    return refusal(by_length) if long else ""


def _score_fault(
    results: Results, scores: str, problems: list[AnsweredProblem], grader: Grader
) -> str:
    try:
        stated = rows_of(read_score_file(results.root / scores)[0])
    except DamagedFileError as error:
        return str(error)
    found = score_rows(problems, grader.grades(gold_and_responses(problems)))
    by_rules = [
        replace(row, verifier="not_asked", verifier_cut=False, correct_with_verifier=row.correct)
        for row in stated
    ]
    differing = sum(a != b for a, b in zip(by_rules, found, strict=False))
    differing += abs(len(stated) - len(found))
    if differing:
        return f"{differing} of {len(stated)} rows do not follow from the responses"
    asked = results.study.evaluation.verifier is not None
    pairs = zip(stated, found, strict=True)
    if not all(_is_counted(row, rules, asked and not rules.correct) for row, rules in pairs):
        return "the verdicts of the verifier are not counted correctly"
    return ""


def _is_counted(stated: ScoreRow, by_rules: ScoreRow, judged: bool) -> bool:
    """Return whether the stated verdict of the verifier on a row is counted correctly."""
    if not judged or stated.verifier == "not_asked":
        return not judged and stated == by_rules
    judgement = Judgement(stated.verifier, stated.verifier_cut)
    return stated.verifier in OPINIONS and stated == with_judgement(by_rules, judgement)
