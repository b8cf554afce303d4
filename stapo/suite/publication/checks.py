"""The questions of `verify`: what contradicts the study, the other files, or itself.

An attempt of a training records its command and the whole study as it was when the training started. What it
lists and the folder does not show was removed later, when results were known: this may be a selection of
results. A training may come from another study that has the same training.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stapo.core.files import canonical, fingerprint, read_json, read_jsonl
from stapo.core.step_record import gpu_seconds, step_seconds
from stapo.suite import paths
from stapo.suite.analysis.artefacts import Artefacts, StaleScoreError, read_tables
from stapo.suite.analysis.drawing import DRAW
from stapo.suite.answers import Reader, built_in, is_built_in
from stapo.suite.evaluation.grading import Grade, grade_answers
from stapo.suite.evaluation.scores import (
    Judgement,
    beside_reward,
    engines_of,
    gold_and_answers,
    refusal,
    score_rows,
    with_golds,
    with_judgement,
)
from stapo.suite.evaluation.task import are_rows_of, rows_of
from stapo.suite.job import Job
from stapo.suite.jobs import jobs_of
from stapo.suite.jobs.analyse import SHOWN
from stapo.suite.jobs.evaluate import cell
from stapo.suite.jobs.prepare import recorded_base
from stapo.suite.jobs.train import recorded_intervention
from stapo.suite.publication.folder import (
    UNREADABLE,
    VERIFIER,
    WEIGHTS,
    Results,
    is_rendering,
    named_by,
    published_study,
)
from stapo.suite.records import scores as records
from stapo.suite.records.responses import AnsweredProblem
from stapo.suite.records.scores import OPINIONS, ScoreRow, read_identity, read_score_file
from stapo.suite.study import Study, StudyError, TrainingRun
from stapo.suite.study.files import rows_checksum
from stapo.suite.study.sources import DomainData, FileData, HubData, HubModel, TinyData
from stapo.suite.training.prompts import check_overlap, checksum, local_rows, read_prompts

Errors = Iterator[str]

ROUNDING = 1e-6
"""Relative tolerance of sums."""
LISTS = ("models", "methods", "seeds", "decodings", "benchmarks")
METADATA, PROMPTS, OVERLAP = "data/prompts.json", "data/prompts.jsonl", "data/overlap.json"
UNREPEATED = {"study", "provenance", "engine", "differs_from_math_verify", "differs_from_reward"}
"""Of a score file: what only those who made it can say, or what is checked otherwise."""
Grades = dict[tuple[str, str | None], Grade]
"""Gold answer and answer -> grade: equal ones are graded once."""


def training_errors(results: Results) -> Errors:
    """Yield a line for each training of other settings, and each file that is not the published one."""
    jobs = jobs_of(results.study)
    for run, record in results.runs.items():
        for fault in _setting_faults(results, jobs.job("train", run), run, record):
            yield f"runs/{run}/provenance.json: {fault}"
    yield from _file_errors(results)


def _setting_faults(results: Results, job: Job, run: TrainingRun, record: dict[str, Any]) -> Errors:
    """Yield what the record of a training contradicts in the study, the prompts and itself."""
    if record["fingerprint"] != fingerprint(record["config"]):
        yield "its config is not the one of its fingerprint"
    elif record["fingerprint"] != job.fingerprint:
        yield "of a training with other settings"
    if record["prompts"] != results.digest_of("data/prompts.jsonl"):
        yield "trained on other prompts than data/prompts.jsonl"
    for attempt in record["attempts"]:
        last = attempt is record["attempts"][-1]
        for fault in command_faults(results.study, run, attempt, last):
            yield f"its command {fault}"


def command_faults(study: Study, run: TrainingRun, attempt: dict[str, Any], last: bool) -> Errors:
    """Yield how the recorded command of a training's attempt contradicts the published study.

    What was removed from the study before the last attempt was removed before there were results.
    """
    named = dict(pairwise(attempt["command"])).get("train", "--study")
    if named not in (str(run), "--study"):
        yield f"trains {named}"
    if attempt.get("study") is None:
        return
    recorded = _parsed(canonical(attempt["study"]))
    try:
        started = jobs_of(recorded).job("train", run).fingerprint
    except KeyError:
        yield "is of a study without this training"
        return
    if started != jobs_of(study).job("train", run).fingerprint:
        yield "trains with other settings"
    elif last and recorded.name == study.name:
        yield from _dropped(study, recorded)
        yield from _swapped(study, recorded, run.method)


def _swapped(study: Study, recorded: Study, name: str) -> Errors:
    """Yield that a method is shown under the title that another one had when the training started."""
    title = study.method(name).title
    for other in recorded.run.methods:
        if other != name and recorded.method(other).title == title != recorded.method(name).title:
            yield f"is of {name}, which is shown as {title}, at that time the title of {other}"


@cache
def _parsed(text: str) -> Study:
    """Return a recorded study; all trainings of a run of Snakemake have the same."""
    return published_study(json.loads(text))


def _dropped(study: Study, recorded: Study) -> Errors:
    """Yield the entries that a study had when a training started and no longer shows."""
    for key in LISTS:
        dropped = [n for n in getattr(recorded.run, key) if n not in getattr(study.run, key)]
        if dropped:
            yield f"lists {key} that are not shown: {', '.join(map(str, dropped))}"
    for name in {*study.run.benchmarks} & {*recorded.run.benchmarks}:
        asked, shown = (version.benchmarks[name].samples for version in (recorded, study))
        if asked > shown:
            yield f"requests {asked} samples of {name}, {shown} are shown"


def _file_errors(results: Results) -> Errors:
    """Yield each published file that is not as the trainings name it, and each that none names."""
    if not results.study.run.methods:  # No training names weights of base models alone.
        return
    belongs = results.layout
    named: dict[str, str] = {}
    for run, record in results.runs.items():
        for path, stated in named_by(run, record).items():
            # Not the weights of a step that the study no longer evaluates.
            if belongs.is_training_output(path) and named.setdefault(path, stated) != stated:
                yield f"{path}: trainings name different ones"
    for path, stated in named.items():
        if (digest := results.digest_of(path)) != stated:
            yield f"{path}: {'not what its training names' if digest else 'missing, its training names it'}"
    published = filter(belongs.is_training_output, results.files.keys() | results.sums)
    yield from (f"{path}: no training names it" for path in sorted({*published} - named.keys()))
    for inside in sorted(belongs.models - {VERIFIER}):
        if not any(path.startswith(f"{inside}/") and path.endswith(WEIGHTS) for path in named):
            yield f"{inside}: its training names no weights"


def record_errors(results: Results) -> Errors:
    """Yield a line for each training whose metrics contradict it, and each intervention of other settings."""
    for run, record in results.runs.items():
        path = f"runs/{run}/metrics.jsonl"
        steps = read_jsonl(results.folder / path)
        for fault in _step_faults(record, steps, results.study.training.steps):
            yield f"{path}: {fault}"
    for job in jobs_of(results.study).all("intervene"):
        if recorded_intervention(job, results.root) != job.fingerprint:
            yield f"{job.outputs[0]}: made with other settings"


def _step_faults(record: dict[str, Any], steps: list[Any], expected: int) -> Errors:
    """Yield what the metrics of a training contradict in its provenance."""
    if [step["step"] for step in steps] != [*range(1, expected + 1)] or record["steps"] != expected:
        yield f"not the steps 1 to {expected} in order, each once"
        return
    taken = sum(map(step_seconds, steps))
    on_gpus = gpu_seconds(steps, record["attempts"]) if record["environment"]["gpus"] else 0.0
    for name, value in (("seconds", taken), ("gpu_seconds", on_gpus)):
        if abs(record[name] - value) > ROUNDING * max(value, 1.0):
            yield f"gives {name} {value}, its provenance says {record[name]}"


def input_errors(results: Results) -> Errors:
    """Yield a line for each input of the trainings that contradicts the study."""
    metadata = read_json(results.folder / METADATA)
    for name, expected in _wanted(results).items():
        if expected is not None and metadata[name] != expected:
            yield f"{METADATA}: {name} {metadata[name]}, by the study {expected}"
    yield from model_errors(results)
    if not results.is_summary:
        yield from _prompt_errors(results, metadata) or _overlap_errors(results)


def _wanted(results: Results) -> dict[str, int | str | None]:
    """Return what the study says of its prompts, None for what it leaves open."""
    data = results.study.data
    if isinstance(data, HubData):
        return {"unique": data.unique_prompts, "sha256": data.sha256}
    if isinstance(data, FileData):
        return {"rows": data.rows}
    return {"rows": data.prompts, "unique": data.prompts}


def _prompt_errors(results: Results, metadata: Any) -> list[str]:
    """Return what is wrong with the prompts: their content, or what `data/prompts.json` says of them."""
    path, data = results.folder / PROMPTS, results.study.data
    if isinstance(data, DomainData | TinyData):
        records = read_jsonl(path)
        for number, (record, made) in enumerate(zip_longest(records, local_rows(data)), 1):
            if record != made:
                return [f"{PROMPTS}: line {number}: not the prompt that the study's data give"]
    prompts = read_prompts(path)
    if (metadata["prompts"], metadata["sha256"]) != (len(prompts), checksum(prompts)):
        return [f"{METADATA}: does not belong to {PROMPTS}"]
    left_out = metadata["conflicting"] + metadata.get("unrewarded", 0)
    if not metadata["rows"] >= metadata["unique"] == left_out + len(prompts):
        return [f"{METADATA}: its numbers are inconsistent"]
    # Of a file with repeated questions, some rows are no prompts.
    whole = isinstance(data, FileData) and metadata["rows"] == len(prompts)
    if whole and rows_checksum(prompts) != getattr(data, "sha256", None):
        return [f"{PROMPTS}: not the rows of the study's file, by their checksum"]
    return []


def _overlap_errors(results: Results) -> list[str]:
    """Return what is wrong with the recorded overlap of prompts and benchmarks."""
    study = results.study
    at, questions = f"{next(study.checkpoints())}/{study.run.decodings[0]}", {}
    for benchmark in study.run.benchmarks:
        job = jobs_of(study).job("score", f"{at}/{benchmark}")
        rows = rows_of(study.task(benchmark), results.responses(job))
        questions[benchmark] = [row["question"] for row in rows]
    published = isinstance(study.data, HubData)
    try:
        overlap = check_overlap(results.folder / PROMPTS, questions, published)
    except StudyError as error:
        return [line.rpartition("/")[2] for line in error.errors]
    if read_json(results.folder / OVERLAP) != overlap:
        common = json.dumps(overlap)[:200]
        return [f"{OVERLAP}: not what prompts and benchmarks have in common: {common}"]
    return []


def model_errors(results: Results) -> Errors:
    """Yield the models whose recorded source differs from the study's."""
    study = results.study
    for job in jobs_of(study).all("base"):
        if recorded_base(job, results.root) != job.fingerprint:
            yield f"{job.outputs[0]}: not the study's model"
    asked: dict[str, Any] = {model: study.models[model] for model in study.run.models}
    asked["verifier"] = study.evaluation.verifier
    stated = read_json(results.folder / "provenance.json")["models"]
    for name, given in asked.items():
        source = stated.get(name, {})
        origin = (source.get("hub"), source.get("revision"))
        from_hub = isinstance(given, HubModel) or (name == "verifier" and given is not None)
        if origin != ((given.hub, given.revision) if from_hub else (None, None)):
            yield f"models/{name}: comes from {origin[0]} at {origin[1]}, which the study does not say"
        elif from_hub and given.revision not in ("main", source.get("commit")):
            yield f"models/{name}: is of commit {source.get('commit')}, the study pins {given.revision}"


def score_errors(results: Results) -> Errors:
    """Yield a line for each cell with incorrect responses or scores."""
    known: Grades = {}
    for job in jobs_of(results.study).all("score"):
        (scores,), (responses,) = job.outputs, job.inputs
        try:
            problems = results.responses(job)
            if fault := _response_fault(results, job, problems):
                yield f"{responses}: {fault}"
            elif fault := _score_fault(results, job, problems, known):
                yield f"{scores}: {fault}"
        except UNREADABLE as error:
            yield f"{responses}: or its scores are unreadable: {error}"


def origin_errors(results: Results) -> Errors:
    """Yield a line for each score file that was not made by this study, or not as the others."""
    for decoding in results.study.run.decodings:
        try:
            read_tables(results.study, decoding, results.study.cells(decoding), results.root)
        except StaleScoreError as error:
            yield from str(error).splitlines()
    jobs = jobs_of(results.study)
    package = {"hf": "transformers ", "vllm": "vllm "}[results.study.evaluation.backend]
    for job in jobs.all("score"):
        (path,), (responses,) = job.outputs, job.inputs
        stated = dict(read_identity(results.root / path))
        digest = results.digest((results.root / responses).resolve())
        expected = {**cell(jobs, job), "responses": digest}
        del expected["study"]  # Its name determines nothing, and may have changed.
        engines = engines_of(results.responses(job))
        if stated.get("engine") != " and ".join(engines) or not engines[0].startswith(package):
            expected["engine"] = f"{package.strip()}, as of the responses: {engines}"
        for key in sorted((stated.keys() | expected.keys()) - (UNREPEATED - expected.keys())):
            if stated.get(key) != expected.get(key):
                yield f"{path}: its {key} is {stated.get(key)!r}, expected {expected.get(key)!r}"


def _response_fault(results: Results, job: Job, problems: list[AnsweredProblem]) -> str:
    study, benchmark = results.study, job.name.rpartition("/")[2]
    made_by, expected = {problem.fingerprint for problem in problems}, next(job.sources).fingerprint
    if made_by != {expected}:
        return f"of configuration {', '.join(sorted(made_by))}, the study's is {expected}"
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
    return refusal(problems, study.evaluation.devices)


def _score_fault(results: Results, job: Job, problems: list[AnsweredProblem], known: Grades) -> str:
    table, identity = read_score_file(results.root / job.outputs[0])
    stated, answered = records.rows_of(table), problems
    answer = results.study.answer(job.name.rpartition("/")[2])
    reader = built_in(answer) if is_built_in(answer) else _as_stated(stated)
    problems = with_golds(problems, reader)
    pairs = gold_and_answers(problems, reader)
    new = [pair for pair in dict.fromkeys(pairs) if pair not in known]
    known.update(zip(new, grade_answers(new, reader.verifier), strict=True))
    asked = results.study.evaluation.verifier is not None
    grades = [known[pair] for pair in pairs]
    computed = score_rows(problems, grades)
    if len(stated) != len(computed):
        return f"{len(stated)} rows, {len(computed)} are expected"
    both = [(row, counted(row, rules, asked)) for row, rules in zip(stated, computed, strict=True)]
    if differing := sum(row != rules for row, rules in both):
        # Later graders read more notations.
        judged = sum(row.correct != rules.correct for row, rules in both)
        commit = str(identity.get("provenance", {}).get("commit"))[:12]
        rows = f"{differing} of {len(stated)} rows do not follow from the responses"
        return f"{rows}, {judged} of them in whether they are right; graded by commit {commit}"
    reward, beside = results.study.training.reward, identity.get("differs_from_reward")
    if beside and (
        not is_built_in(reward) or beside != beside_reward(answered, grades, built_in(reward))
    ):
        return "its differs_from_reward does not follow from the responses"
    return ""


def _as_stated(rows: list[ScoreRow]) -> Reader:
    """Return a reader that takes what a function of the study's own found, which is not in the folder."""
    answers = iter(row.answer for row in rows)
    return replace(built_in("boxed"), read=lambda *_: next(answers, None))


def counted(stated: ScoreRow, by_rules: ScoreRow, asked: bool) -> ScoreRow:
    """Return the row by the rules, with the verifier's stated verdict on what they reject if it was asked."""
    if not asked or by_rules.correct:
        return by_rules
    opinion = stated.verifier if stated.verifier in OPINIONS else "invalid"
    return with_judgement(by_rules, Judgement(opinion, stated.verifier_cut))


def drawn_errors(results: Results) -> Errors:
    """Yield a line for each table, figure or report that does not follow from the results."""
    study_jobs, folder = jobs_of(results.study), paths.RESULTS.format(study=results.study.name)
    jobs = {stage: list(study_jobs.all(stage)) for stage in SHOWN}
    outputs = [path for stage_jobs in jobs.values() for job in stage_jobs for path in job.outputs]
    made = {path.removeprefix(f"{folder}/").partition("/")[0] for path in outputs}
    with TemporaryDirectory() as scratch:
        again = Path(scratch)
        (again / folder).mkdir(parents=True)
        for entry in results.folder.iterdir():
            if entry.name not in made:
                (again / folder / entry.name).symlink_to(entry)
        artefacts = Artefacts(results.study, again)
        for stage, stage_jobs in jobs.items():
            DRAW[stage](artefacts, [job.name for job in stage_jobs])
        for path in outputs:
            name = path.removeprefix(f"{folder}/")
            if is_rendering(name) and name not in results.files:
                continue
            if (results.root / path).read_bytes() != (again / path).read_bytes():
                yield f"{name}: does not follow from scores, responses and records"
