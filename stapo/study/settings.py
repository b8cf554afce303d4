"""The settings of a job one by one: Snakemake names those that changed when it says why a job runs again.

A job has the settings of its own stage here. What lies before it is in its fingerprint alone: the many jobs
at the end of a study would carry the settings of all stages. No setting stands here that is not in the
fingerprint too, so that none reruns a job by itself; those of prompts that only check them are the exception.
"""

from typing import Any

from stapo.canonical import canonical, leaves
from stapo.exhibits import Exhibit
from stapo.study import identity
from stapo.study.checkpoint import Checkpoint, TrainingRun
from stapo.study.study import Study

Settings = dict[str, str]
"""Place to `place=value`, such as `training.learning_rate=1e-06`."""


def _settings(config: dict[str, Any]) -> Settings:
    return {place: f"{place}={canonical(value)}" for place, value in leaves(config).items()}


def data_settings(study: Study) -> Settings:
    """Return all that determines the training prompts, and what they are checked against."""
    data = study.data.model_dump(exclude={"file", "question", "answer"})
    return _settings({**identity.data_config(study), "data": data})


def overlap_settings(study: Study) -> Settings:
    """Return how often each benchmark is answered."""
    return _settings({"benchmarks": _samples(study, study.evaluated())})


def base_settings(study: Study, size: str) -> Settings:
    """Return all that determines a base model."""
    return _settings(identity.base_config(study, size))


def verifier_settings(study: Study) -> Settings:
    """Return all that determines the verifier's directory."""
    return _settings({"verifier": identity.verifier_config(study)})


def train_settings(study: Study, run: TrainingRun) -> Settings:
    """Return all that determines a training."""
    return _settings(identity.train_config(study, run))


def generate_settings(study: Study, checkpoint: Checkpoint, decoding: str) -> Settings:
    """Return how a checkpoint's responses are generated, and how they are judged."""
    config = identity.generate_config(study, checkpoint, decoding)
    del config["checkpoint"]
    return _settings(
        {
            **config,
            "benchmarks": _samples(study, study.answered(checkpoint, decoding)),
            "verifier": identity.judge_config(study),
        }
    )


def score_settings(study: Study, benchmark: str) -> Settings:
    """Return how responses are scored."""
    return _settings(
        {
            "recipe": identity.RECIPES["score"],
            "benchmarks": _samples(study, [benchmark]),
            "verifier": identity.judge_config(study),
        }
    )


def table_settings(study: Study) -> Settings:
    """Return what the table of any decoding shows."""
    return _settings(
        {
            "methods": _names(study, identity.NAMES_OF_METHODS),
            "compare": dict(zip(("target", "baselines"), study.compared(), strict=True)),
            "evaluation": study.evaluation.model_dump(include={"select", "development", "verdict"}),
            "run": study.run.model_dump(exclude={"decodings"}),
        }
    )


def intervention_settings(study: Study, checkpoint: Checkpoint) -> Settings:
    """Return all that determines the interventions at a checkpoint but its weights."""
    config = identity.intervention_config(study, checkpoint)
    del config["checkpoint"]
    return _settings(config)


def metrics_settings(study: Study) -> Settings:
    """Return what a figure of the trainings' metrics shows."""
    run = study.run.model_dump(include={"sizes", "methods", "seeds"})
    return _settings({"methods": _names(study, ["title"]), "run": run})


def accuracy_settings(study: Study) -> Settings:
    """Return what the figure of accuracy shows."""
    return _settings(
        {
            "methods": _names(study, ["title"]),
            "evaluation": study.evaluation.model_dump(include={"verdict", "curve"}),
            "run": study.run.model_dump(),
        }
    )


def exhibit_settings(study: Study, exhibit: Exhibit) -> Settings:
    """Return what a figure or a table of evidence shows."""
    if "scores" not in exhibit.sources:
        found = metrics_settings(study)
    else:
        tables = {} if exhibit.sources == {"scores"} else table_settings(study)
        found = tables | accuracy_settings(study)
    if "interventions" in exhibit.sources and study.intervened():
        found |= _settings({"interventions": study.interventions.model_dump()})
    return found


def report_settings(study: Study) -> Settings:
    """Return what the report shows."""
    decodings = _settings({"run": study.run.model_dump(include={"decodings"})})
    curves = accuracy_settings(study) if study.kept_steps() else {}
    given = study.interventions.model_dump()
    others = _settings({"interventions": given}) if study.intervened() else {}
    return table_settings(study) | decodings | curves | others


def reference_settings(study: Study) -> Settings:
    """Return what the references of a study are chosen by."""
    return _settings(identity.references_config(study))


def _samples(study: Study, benchmarks: list[str]) -> dict[str, Any]:
    return {name: {"samples": study.benchmarks[name].samples} for name in benchmarks}


def _names(study: Study, keys: tuple[str, ...] | list[str]) -> dict[str, Any]:
    methods = {name: study.method(name) for name in study.run.methods}
    return {name: {key: getattr(method, key) for key in keys} for name, method in methods.items()}
