"""What determines each job of a study, and its fingerprint, which is put together nowhere else.

A `..._config` holds everything that the result of a job depends on, and nothing else; its fingerprint says
whether a result is one of the study as it is now. They are cumulative: a training's holds its base model's,
a checkpoint's responses hold the training's, and so on to the report.
"""

from dataclasses import asdict, replace
from typing import Any

from stapo.canonical import fingerprint
from stapo.exhibits import Exhibit
from stapo.methods import Method
from stapo.study.checkpoint import Checkpoint, TrainingRun
from stapo.study.code import function_name, is_file
from stapo.study.schema import TrainingSettings
from stapo.study.sources import FileData, Model, TinyModel
from stapo.study.study import Study

RECIPES = {
    "data": 1,
    "overlap": 2,
    "base": 1,
    "train": 4,
    "generate": 3,
    "score": 5,
    "intervene": 1,
}
"""Raised when the code of a stage changes its results: the number is part of the fingerprints."""

NAMES_OF_METHODS = ("title", "source", "revision")
"""What of a method changes no weights."""

ENGINE_SETTINGS = ("backend", "batch_size")
"""Of an evaluation: who answers, not what is asked."""


def study_fingerprint(study: Study) -> str:
    """Return the fingerprint of a study as a whole."""
    return fingerprint(study.model_dump(mode="json"))


def data_config(study: Study) -> dict[str, Any]:
    """Return what determines the training prompts."""
    # Number and checksum only check: to write them into a study trains nothing anew.
    without = {"unique_prompts", "sha256"}
    if isinstance(study.data, FileData):
        # Of a file, its content.
        without = {"file", "question", "answer"}
    data = study.data.model_dump(exclude=without)
    return {"recipe": RECIPES["data"], "data": data}


def overlap_config(study: Study) -> dict[str, Any]:
    """Return what determines how many problems are training prompts, the prompts apart."""
    benchmarks = {name: benchmark_config(study, name) for name in study.evaluated()}
    return {"recipe": RECIPES["overlap"], "benchmarks": benchmarks}


def overlap_fingerprint(study: Study) -> str:
    """Return the fingerprint of what is compared with the prompts."""
    return fingerprint(overlap_config(study))


def model_settings(model: Model) -> dict[str, Any]:
    """Return the settings of a base model; of one in a folder, its content and not its place."""
    settings = model.model_dump(mode="json", exclude={"path"})
    for name in ("slip_rate", "connecting_word_rate"):
        if settings.get(name) == TinyModel.model_fields[name].default:
            del settings[name]  # Models from before this setting keep their fingerprint.
    return settings


def model_config(model: Model) -> dict[str, Any]:
    """Return what determines a base model."""
    return {"recipe": RECIPES["base"], "model": model_settings(model)}


def model_fingerprint(model: Model) -> str:
    """Return the fingerprint of a base model."""
    return fingerprint(model_config(model))


def base_config(study: Study, size: str) -> dict[str, Any]:
    """Return what determines the base model of a size."""
    return model_config(study.models[size])


def verifier_config(study: Study) -> dict[str, Any]:
    """Return what determines the verifier's directory; nothing without a verifier."""
    verifier = study.evaluation.verifier
    if verifier is None:
        return {}
    parts = {"hub", "revision"} | ({"template"} if verifier.template != "own" else set())
    return verifier.model_dump(include=parts)


def judge_config(study: Study) -> dict[str, Any] | None:
    """Return what determines the verifier's verdicts, None without a verifier."""
    verifier = study.evaluation.verifier
    return verifier.model_dump(exclude={"batch_size"}) if verifier else None


def _method_config(method: Method) -> dict[str, Any]:
    """Return what of a method determines weights; of a selection of a study's own, function and checksum."""
    found = {k: v for k, v in asdict(method).items() if k not in NAMES_OF_METHODS}
    del found["selection_path"]
    if method.is_own:
        found["selection"] = function_name(method.selection)
    else:
        del found["selection_sha256"]
    return found


def _training_config(training: TrainingSettings, without: set[str]) -> dict[str, Any]:
    """Return training settings; of a reward in a file, the function and not the place of the file."""
    found = training.model_dump(exclude=without)
    if is_file(training.reward):
        found["reward"] = function_name(training.reward)
    return found


def train_config(study: Study, run: TrainingRun) -> dict[str, Any]:
    """Return what determines the final weights of a training."""
    method = study.method(run.method)
    without = {"checkpoint_every", "keep_checkpoints", "evaluate_every", "rollout_mismatch_limit"}
    without.add("token_records_mb")  # Weights and metrics do not depend on it.
    if method.reads == "none":
        without.add("statistics")  # They select nothing.
    return {
        "recipe": RECIPES["train"],
        "base": base_config(study, run.size),
        "data": data_config(study),
        "method": _method_config(method),
        "training": _training_config(study.training_of(run.method), without),
        "end_tokens": sorted(set(study.end_tokens)),
        "seed": run.seed,
    }


def train_fingerprint(study: Study, run: TrainingRun) -> str:
    """Return the fingerprint of a training."""
    return fingerprint(train_config(study, run))


def checkpoint_config(study: Study, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what determines the weights of a checkpoint."""
    if checkpoint.run is None:
        return base_config(study, checkpoint.size)
    final, step = train_config(study, checkpoint.run), checkpoint.step
    return final if step is None else {**final, "weights_of": f"step{step}"}


def checkpoint_fingerprint(study: Study, checkpoint: Checkpoint) -> str:
    """Return the fingerprint of the weights of a checkpoint."""
    return fingerprint(checkpoint_config(study, checkpoint))


def generate_config(study: Study, checkpoint: Checkpoint, decoding: str) -> dict[str, Any]:
    """Return what determines the responses of a checkpoint, the benchmark apart."""
    return {
        "recipe": RECIPES["generate"],
        "checkpoint": checkpoint_config(study, checkpoint),
        "decoding": study.decodings[decoding].model_dump(),
        "end_tokens": sorted(set(study.end_tokens)),
        "evaluation": study.evaluation.model_dump(
            exclude={"verifier", "verdict", "select", "development", "curve"}
        ),
    }


def generate_fingerprint(study: Study, checkpoint: Checkpoint, decoding: str) -> str:
    """Return the fingerprint of the responses of a checkpoint, the benchmark apart."""
    return fingerprint(generate_config(study, checkpoint, decoding))


def intervention_config(study: Study, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what determines the result of the interventions at a checkpoint."""
    settings = study.interventions
    method = study.method(settings.method)
    # One mini-batch is generated and used for one update at the full learning rate.
    without = {
        "steps", "warmup_steps", "prompts_per_batch", "statistics", "checkpoint_every", "keep_checkpoints",
        "evaluate_every", "rollout_mismatch_limit", "token_records_mb",
    }  # fmt: skip
    return {
        "recipe": RECIPES["intervene"],
        "checkpoint": checkpoint_config(study, checkpoint),
        "data": data_config(study),
        "method": _method_config(method),
        "training": _training_config(study.training_of(settings.method), without),
        "end_tokens": sorted(set(study.end_tokens)),
        "interventions": settings.model_dump(exclude={"checkpoints", "method"}),
    }


def intervention_fingerprint(study: Study, checkpoint: Checkpoint) -> str:
    """Return the fingerprint of the interventions at a checkpoint."""
    return fingerprint(intervention_config(study, checkpoint))


def interventions_fingerprint(study: Study) -> str:
    """Return the fingerprint of what figures and tables of the interventions show."""
    made_by = [intervention_fingerprint(study, one) for one in study.intervened()]
    return fingerprint([study.method(study.interventions.method).title, made_by])


def benchmark_config(study: Study, benchmark: str) -> dict[str, Any]:
    """Return what determines the problems of a benchmark and how many responses each gets."""
    return {
        "task": study.task(benchmark),
        "samples": study.benchmarks[benchmark].samples,
    }


def asked_fingerprint(study: Study, checkpoint: Checkpoint, decoding: str, benchmark: str) -> str:
    """Return the fingerprint of what is asked of which weights; equal where only engines differ."""
    generate = generate_config(study, checkpoint, decoding)
    evaluation = {k: v for k, v in generate["evaluation"].items() if k not in ENGINE_SETTINGS}
    asked = {**generate, "evaluation": evaluation}
    return fingerprint([asked, benchmark_config(study, benchmark)])


def score_fingerprint(study: Study, checkpoint: Checkpoint, decoding: str, benchmark: str) -> str:
    """Return the fingerprint of everything that leads to the scores of one cell."""
    generate = generate_config(study, checkpoint, decoding)
    task, judge = benchmark_config(study, benchmark), judge_config(study)
    return fingerprint([RECIPES["score"], generate, task, judge])


def responses_fingerprint(study: Study, checkpoint: Checkpoint, decoding: str) -> str:
    """Return the fingerprint of everything that is made of a checkpoint's responses: of all their scores."""
    answered = study.answered(checkpoint, decoding)
    return fingerprint([score_fingerprint(study, checkpoint, decoding, name) for name in answered])


def score_identity(
    study: Study, checkpoint: Checkpoint, decoding: str, benchmark: str
) -> dict[str, Any]:
    """Return what a score file says of itself."""
    return {
        "asked": asked_fingerprint(study, checkpoint, decoding, benchmark),
        "verifier": verifier_config(study),
        "fingerprint": score_fingerprint(study, checkpoint, decoding, benchmark),
        "study": study.name,
        "checkpoint": str(checkpoint),
        "decoding": decoding,
        "benchmark": benchmark,
        "samples": study.benchmarks[benchmark].samples,
    }


def score_fingerprints(study: Study, decoding: str) -> list[str]:
    """Return the fingerprints of every score that the table of a decoding shows."""
    return [score_fingerprint(study, c, decoding, b) for c, b in study.table_cells(decoding)]


def table_fingerprint(study: Study, decoding: str) -> str:
    """Return the fingerprint of what the table of a decoding shows."""
    shown = study.evaluation.model_dump(include={"select", "development", "verdict"})
    methods = [study.method(name) for name in study.run.methods]
    names = [(method.title, method.source, method.revision) for method in methods]
    return fingerprint([names, shown, study.compared(), score_fingerprints(study, decoding)])


def tables_fingerprint(study: Study) -> str:
    """Return the fingerprint of what all tables of a study show."""
    return fingerprint([table_fingerprint(study, decoding) for decoding in study.run.decodings])


def metrics_fingerprint(study: Study) -> str:
    """Return the fingerprint of what a figure of the trainings' metrics shows."""
    titles = [study.method(name).title for name in study.run.methods]
    return fingerprint([titles, [train_config(study, run) for run in study.runs()]])


def accuracy_fingerprint(study: Study) -> str:
    """Return the fingerprint of what the figure of accuracy shows."""
    shown = study.evaluation.model_dump(include={"verdict", "curve"})
    titles = [study.method(name).title for name in study.run.methods]
    scores = [
        score_fingerprint(study, c, d, b) for d in study.run.decodings for c, b in study.cells(d)
    ]
    return fingerprint([titles, shown, study.run.benchmarks, scores])


def exhibit_fingerprint(study: Study, exhibit: Exhibit) -> str:
    """Return the fingerprint of what a figure or a table of evidence shows."""
    if "interventions" in exhibit.sources and study.intervened():
        others = replace(exhibit, sources=exhibit.sources - {"interventions"})
        made_by = interventions_fingerprint(study)
        return fingerprint([made_by, exhibit_fingerprint(study, others)])
    if "scores" not in exhibit.sources:
        return metrics_fingerprint(study)
    scores = accuracy_fingerprint(study)
    if exhibit.sources == {"scores"}:
        return scores
    # Besides curves, they show the weights and the comparisons of the main tables.
    return fingerprint([metrics_fingerprint(study), scores, tables_fingerprint(study)])


def report_fingerprint(study: Study) -> str:
    """Return the fingerprint of what the report shows of the scores."""
    tables = [table_fingerprint(study, decoding) for decoding in study.run.decodings]
    curves = accuracy_fingerprint(study) if study.kept_steps() else None
    others = [interventions_fingerprint(study)] if study.intervened() else []
    return fingerprint([study.name, tables, curves, *others])


def references_config(study: Study) -> dict[str, Any]:
    """Return what determines which references a study has: methods, benchmarks, repositories on the Hub."""
    models = [study.models[size] for size in study.run.sizes]
    asked: list[Any] = [*models, study.data, study.evaluation.verifier]
    engines = {study.evaluation.backend, study.training.rollouts}
    return {
        "methods": [*dict.fromkeys(study.origin_of(name) for name in study.run.methods)],
        "benchmarks": study.evaluated(),
        "hub": [*dict.fromkeys(one.hub for one in asked if hasattr(one, "hub"))],
        "vllm": not engines <= {"hf", "transformers"},
    }


def references_fingerprint(study: Study) -> str:
    """Return the fingerprint of a study's references."""
    return fingerprint([study.name, references_config(study)])
