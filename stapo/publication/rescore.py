"""Check that scores follow from the responses, and that the responses belong to their benchmark."""

import time
from collections.abc import Iterator
from dataclasses import replace

from stapo import paths
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
from stapo.records.responses import AnsweredProblem
from stapo.records.scores import ScoreRow, read_identity, read_score_file, rows_of
from stapo.records.verdicts import OPINIONS
from stapo.study.identity import score_identity

SLOW_SECONDS, ANSWER_SECONDS = 60.0, 0.05
"""Time to grade a folder: a minute, plus this for each response; far more than honest answers need."""
CHUNK = 100
"""Number of answers that are graded between two checks of the time."""


class Overdue(Exception):
    """Grading takes too long."""


class Grader:
    """Grades equal answers once, and stops if a folder is made so that grading takes days.

    Args:
        responses: number of responses in the folder.
    """

    def __init__(self, responses: int) -> None:
        self.known: dict[tuple[str, str], Grade] = {}
        self.left = SLOW_SECONDS + ANSWER_SECONDS * responses

    def grades(self, pairs: list[tuple[str, str]]) -> list[Grade]:
        """Return the grades of gold answers and responses.

        Raises:
            Overdue: the answers of this folder take longer than any honest answers.
        """
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self.known]
        for start in range(0, len(new), CHUNK):
            if self.left < 0:
                raise Overdue
            began, part = time.monotonic(), new[start : start + CHUNK]
            self.known.update(zip(part, grade_all(part), strict=True))
            self.left -= time.monotonic() - began
        return [self.known[pair] for pair in pairs]


def score_errors(results: Results) -> Iterator[str]:
    """Yield a line for each cell with incorrect responses or scores."""
    cells = list(results.cells())
    study = results.study
    grader = Grader(sum(results.samples(b) * study.problems(b) for _, _, b in cells))
    for checkpoint, decoding, benchmark in cells:
        at = {"study": study.name, "checkpoint": checkpoint, "decoding": decoding}
        scores = paths.SCORES.format(**at, benchmark=benchmark)
        responses = paths.COMPLETIONS.format(**at, benchmark=benchmark)
        try:
            problems = results.responses(checkpoint, decoding, benchmark)
            fault = _response_fault(results, benchmark, problems)
            where = responses if fault else scores
            fault = fault or _score_fault(results, scores, problems, grader)
        except Overdue:
            yield f"{responses}: grading takes longer than any honest answers; the rest is not checked"
            return
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            where, fault = responses, f"or its scores are unreadable: {error}"
        if fault:
            yield f"{where}: {fault}"


UNREPEATED = {"provenance", "engine", "differs_from_math_verify"}
"""Of a score file: what only those who made it can say, or what is checked otherwise."""


def identity_errors(results: Results) -> Iterator[str]:
    """Yield a line for each score file with incorrect metadata."""
    study = results.study
    for checkpoint, decoding, benchmark in results.cells():
        path = paths.SCORES.format(
            study=study.name, checkpoint=checkpoint, decoding=decoding, benchmark=benchmark
        )
        stated = dict(read_identity(results.root / path))
        expected = score_identity(study, checkpoint, decoding, benchmark)
        responses = results.folder / f"completions/{checkpoint}/{decoding}/{benchmark}.jsonl"
        expected["responses"] = results.digest(responses)
        for key in sorted((stated.keys() | expected.keys()) - UNREPEATED):
            if stated.get(key) != expected.get(key):
                yield f"{path}: its {key} is {stated.get(key)!r}, expected {expected.get(key)!r}"
        engines = engines_of(results.responses(checkpoint, decoding, benchmark))
        if engines != [stated.get("engine")]:
            yield f"{path}: its engine is {stated.get('engine')!r}, the responses' {engines}"
        package = {"hf": "transformers ", "vllm": "vllm "}[study.evaluation.backend]
        if not str(stated.get("engine")).startswith(package):
            yield f"{path}: its engine is {stated.get('engine')!r}, the study's {package.strip()}"


def _response_fault(results: Results, benchmark: str, problems: list[AnsweredProblem]) -> str:
    study = results.study
    rows, limit = study.problems(benchmark), study.evaluation.max_response_tokens
    if [problem.problem for problem in problems] != list(range(rows)):
        return f"not the {rows} problems of {benchmark} in their order"
    if not are_rows_of(study.task(benchmark), problems):
        return f"questions or golds are not those of {benchmark}"
    for problem in problems:
        for response in problem.samples():
            tokens = response.num_tokens
            # vLLM also stops at the end of the model's context.
            short = response.truncated and study.evaluation.backend == "hf" and tokens != limit
            if short or not 1 <= tokens <= limit:
                ended = "truncated" if response.truncated else "not truncated"
                return f"problem {problem.problem}: {tokens} tokens, {ended}; the limit is {limit}"
    return refusal(problems)


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
