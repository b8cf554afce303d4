"""Check that scores follow from the responses, and tables, figures and report from scores and records."""

from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

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
from stapo.publication.folder import Results
from stapo.records.responses import AnsweredProblem
from stapo.records.scores import ScoreRow, read_identity, read_score_file, rows_of
from stapo.records.verdicts import OPINIONS
from stapo.stages import Resources, jobs_of, stages
from stapo.stages.evaluate import cell

UNREPEATED = {"provenance", "engine", "differs_from_math_verify"}
"""Of a score file: what only those who made it can say, or what is checked otherwise."""


DRAWN = ("tables", "evidence", "figures", "report")
Grades = dict[tuple[str, str], Grade]
"""Gold answer and response -> grade: equal ones are graded once."""


def score_errors(results: Results) -> Iterator[str]:
    """Yield a line for each cell with incorrect responses or scores."""
    known: Grades = {}
    for job in jobs_of(results.study).all("score"):
        (scores,), (responses,) = job.outputs, job.inputs
        checkpoint, decoding, benchmark = results.cell(job)
        try:
            problems = results.responses(checkpoint, decoding, benchmark)
            if fault := _response_fault(results, benchmark, problems):
                yield f"{responses}: {fault}"
            elif fault := _score_fault(results, scores, problems, known):
                yield f"{scores}: {fault}"
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            yield f"{responses}: or its scores are unreadable: {error}"


def identity_errors(results: Results) -> Iterator[str]:
    """Yield a line for each score file with incorrect metadata."""
    of = jobs_of(results.study)
    package = {"hf": "transformers ", "vllm": "vllm "}[results.study.evaluation.backend]
    for job in of.all("score"):
        (path,), (responses,) = job.outputs, job.inputs
        stated = dict(read_identity(results.root / path))
        expected = {**cell(of, job), "responses": results.digest(results.place(responses))}
        engines = engines_of(results.responses(*results.cell(job)))
        if engines != [stated.get("engine")] or not engines[0].startswith(package):
            expected["engine"] = f"{package.strip()}, as of the responses: {engines}"
        for key in sorted((stated.keys() | expected.keys()) - (UNREPEATED - expected.keys())):
            if stated.get(key) != expected.get(key):
                yield f"{path}: its {key} is {stated.get(key)!r}, expected {expected.get(key)!r}"


def _response_fault(results: Results, benchmark: str, problems: list[AnsweredProblem]) -> str:
    study = results.study
    limit = study.evaluation.max_response_tokens
    if len(problems) != study.problems(benchmark):
        return f"{len(problems)} problems, {study.problems(benchmark)} are expected"
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
    results: Results, scores: str, problems: list[AnsweredProblem], known: Grades
) -> str:
    stated = rows_of(read_score_file(results.root / scores)[0])
    pairs = gold_and_responses(problems)
    new = [pair for pair in dict.fromkeys(pairs) if pair not in known]
    known.update(zip(new, grade_all(new), strict=True))
    asked = results.study.evaluation.verifier is not None
    found = score_rows(problems, [known[pair] for pair in pairs])
    if len(stated) != len(found):
        return f"{len(stated)} rows, {len(found)} are expected"
    both = zip(stated, found, strict=True)
    differing = sum(one != counted(one, rules, asked) for one, rules in both)
    return f"{differing} of {len(stated)} rows do not follow from the responses" * bool(differing)


def counted(stated: ScoreRow, by_rules: ScoreRow, asked: bool) -> ScoreRow:
    """Return the row by the rules, with the stated verdict of the verifier where it was to be asked.

    It is asked about everything that the rules reject, and nothing else.
    """
    if not asked or by_rules.correct:
        return by_rules
    opinion = stated.verifier if stated.verifier in OPINIONS else "invalid"
    return with_judgement(by_rules, Judgement(opinion, stated.verifier_cut))


def drawn_errors(results: Results) -> Iterator[str]:
    """Yield a line for each table, figure or report that does not follow from the results."""
    of, folder = jobs_of(results.study), paths.RESULTS.format(study=results.study.name)
    jobs = {stage: list(of.all(stage)) for stage in DRAWN}
    outputs = [path for own in jobs.values() for job in own for path in job.outputs]
    made = {path.removeprefix(f"{folder}/").partition("/")[0] for path in outputs}
    with TemporaryDirectory() as scratch:
        again = Path(scratch)
        (again / folder).mkdir(parents=True)
        for entry in results.folder.iterdir():
            if entry.name not in made:
                (again / folder / entry.name).symlink_to(entry)
        with chdir(again), redirect_stdout(StringIO()):
            for stage, own in jobs.items():
                stages()[stage].run(of, own, Resources())
        for path in outputs:
            if not _is_same(results.root / path, again / path):
                yield f"{path}: does not follow from scores, responses and records"


def _is_same(stated: Path, found: Path) -> bool:
    return stated.read_bytes() == found.read_bytes()
