"""Base models, and the verifier: built, downloaded or copied; studies that have the same share it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stapo import paths
from stapo.stages import Job, Jobs, Resources
from stapo.study import Study
from stapo.study.sources import Model, TinyModel

AFTER = ()
RECIPE = 1
VERIFIER = "verifier"
"""Name of the verifier's job; no size has this name."""


def model_settings(model: Model) -> dict[str, Any]:
    """Return the settings of a base model; of one in a folder, its content and not its place."""
    settings = model.constants() | model.model_dump(mode="json", exclude={"path"})
    for name in ("slip_rate", "connecting_word_rate"):
        if settings.get(name) == TinyModel.model_fields[name].default:
            del settings[name]  # Models from before this setting keep their fingerprint.
    return settings


def verifier_settings(study: Study) -> dict[str, Any]:
    """Return what determines the verifier's directory; nothing without a verifier."""
    verifier = study.evaluation.verifier
    if verifier is None:
        return {}
    parts = {"hub", "revision"} | ({"template"} if verifier.template != "own" else set())
    return verifier.model_dump(include=parts)


def jobs(of: Jobs) -> Iterator[Job]:
    """Yield a job for each size, and one for the verifier if the study has one."""
    study = of.study
    for size in study.run.sizes:
        at = {"study": study.name, "size": size}
        yield Job(
            "base",
            size,
            {"recipe": RECIPE, "model": model_settings(study.models[size])},
            outputs=(paths.BASE_RECORD.format(**at),),
            weights=(paths.BASE_MODEL.format(**at),),
        )
    if study.evaluation.verifier:
        yield Job(
            "base",
            VERIFIER,
            {"recipe": RECIPE, "verifier": verifier_settings(study)},
            outputs=(paths.VERIFIER_RECORD.format(study=study.name),),
            weights=(paths.VERIFIER.format(study=study.name),),
        )


def run(of: Jobs, jobs: list[Job], how: Resources) -> None:
    """Build or download each model once, and publish it by hard links."""
    from stapo.files import link_tree, write_json
    from stapo.hub import offline_if_unreachable
    from stapo.locks import work_directory
    from stapo.models.base import write_base
    from stapo.provenance import SUMS, damaged_file

    for job in jobs:
        template = None
        if job.name == VERIFIER:
            judge = of.study.evaluation.verifier
            assert judge is not None
            settings = judge.model_dump(include={"hub", "revision"})
            template = judge.template if judge.template != "own" else None
            made_from = verifier_settings(of.study)
        else:
            settings = of.study.model(job.name).model_dump()
            made_from = model_settings(of.study.models[job.name])
        if "hub" in settings:
            offline_if_unreachable()
        work = Path(paths.BASE_WORK.format(fingerprint=job.fingerprint))
        with work_directory(work, job.config):
            built = work / "model"
            if not (built / SUMS).is_file() or damaged_file(built):
                write_base(settings, built, template)
            link_tree(built, Path(job.weights[0]))
        write_json(Path(job.outputs[0]), made_from)


def recorded(job: Job, root: Path) -> str | None:
    """Return the fingerprint of the published model, by the settings in its record.

    Weights that were removed since, to make space, do not count: nothing is built again for them alone.
    """
    from stapo.canonical import fingerprint
    from stapo.files import read_json

    name = "verifier" if job.name == VERIFIER else "model"
    try:
        return fingerprint({"recipe": RECIPE, name: read_json(root / job.outputs[0])})
    except ValueError:  # Damaged.
        return ""
    except OSError:
        return None
