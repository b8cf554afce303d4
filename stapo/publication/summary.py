"""Check of a results folder whose raw data was left out, as git has it: what can be checked without.

Raw data are models, training prompts, the records of trainings, responses, scores and the updates of
interventions. Their checksums stay in SHA256SUMS, as do those of the report and of figures as PDF and PNG,
which may be left out too. Without raw data nothing can be computed again; what remains is that all files of
the folder belong together and to the study.
"""

from collections.abc import Iterator, Mapping

from stapo.canonical import canonical
from stapo.provenance import SUMS
from stapo.publication import untrusted
from stapo.publication.commands import command_faults
from stapo.publication.folder import Results
from stapo.publication.inputs import origin_errors
from stapo.publication.manifest import named_by
from stapo.study import identity
from stapo.study.titles import title_faults

NOTE = (
    "the raw data (models, prompts, metrics, token records, responses, scores) is not here: what trainings "
    "published has the checksums that they recorded, but no score, table, figure or report was computed "
    "again. With the raw data in the folder, from its authors or from a run of the study, all is checked"
)


def training_errors(results: Results, sums: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each contradiction between a training's record, the study and the checksums."""
    study = results.study
    yield from title_faults(study)
    named: dict[str, str] = {}
    for run, record in results.runs.items():
        place = f"runs/{run}"
        if record["fingerprint"] != identity.train_fingerprint(study, run) or canonical(
            record["config"]
        ) != canonical(identity.train_config(study, run)):
            yield f"{place}/provenance.json: of a training with other settings"
        if record["prompts"] != sums["data/prompts.jsonl"]:
            yield f"{place}/provenance.json: trained on other prompts than data/prompts.jsonl"
        for path, stated in named_by(run, record).items():
            if sums.get(path) != stated:
                yield f"{path}: its training names another one than {SUMS}"
            if named.setdefault(path, stated) != stated:
                yield f"{path}: trainings name different ones"
        for attempt in record["attempts"]:
            faults = command_faults(study, run, attempt, attempt is record["attempts"][-1])
            yield from (f"{place}/provenance.json: its command {fault}" for fault in faults)
    belongs = results.layout()
    of_trainings = {path for path in sums if belongs.of_training(path)}
    yield from (f"{path}: no training names it" for path in sorted(of_trainings - named.keys()))


def input_errors(results: Results, sums: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each model whose source is not the study's, and what the prompts contradict."""
    yield from origin_errors(results)
    counts = untrusted.read_json(results.folder / "data/prompts.json")
    stated = getattr(results.study.data, "sha256", None)
    if stated is not None and counts["sha256"] != stated:
        yield "data/prompts.json: sha256 is not the study's"
