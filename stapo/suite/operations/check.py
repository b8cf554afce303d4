"""What a study would run, with the settings of its methods, and doubts about it: `stapo check`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from stapo.core.methods import METHODS, s2t_arguments
from stapo.suite.answers import is_built_in
from stapo.suite.operations.model_check import model_lines
from stapo.suite.repository import STUDIES
from stapo.suite.study import Study, read_study
from stapo.suite.study.functions import reader_name
from stapo.suite.study.golds import few_left_out
from stapo.suite.study.named_files import NAMED
from stapo.suite.study.reading import matching, resolved_content
from stapo.suite.tasks import instruction_of


def check_document(study: Study) -> dict[str, Any]:
    """Return the document of `stapo check --json`."""
    from stapo.suite.analysis.tables.hyperparameters import differing  # Not for `idle` alone.

    return {
        "study": study.name,
        "trainings": [str(run) for run in study.runs()],
        "steps": study.training.steps,
        "checkpoints": [
            str(checkpoint) for checkpoint in study.checkpoints() if study.is_full(checkpoint)
        ],
        "decodings": list(study.run.decodings),
        "responses": sum(map(study.responses, study.run.benchmarks)),
        "methods": {
            name: asdict(method := study.method(name))
            | {"s2t": s2t_arguments(method, study.s2t()), "effective": method.effective}
            for name in study.run.methods
        },
        "differing": differing(study),
        "own": list(file_lines(study)),
        "models": model_lines(study),
        # Of a valid study; `stapo verify` would report some as errors.
        "warnings": [line for doubts in DOUBTS for line in doubts(study)],
    }


def idle(study: Study) -> Iterator[str]:
    """Yield a line for each method that can never act, since all ratios of its trainings are 1."""
    for name in study.run.methods:
        method, training = study.method(name), study.training_of(name)
        single_update = training.prompts_per_batch == training.prompts_per_mini_batch
        if single_update and method.settings and not method.acts_on_policy:
            remedy = "set training.prompts_per_mini_batch to a part of prompts_per_batch"
            yield f"methods.{name}: one update per rollout, in which it changes nothing; {remedy}"


def filtered(study: Study) -> Iterator[str]:
    """Yield a line if rollouts are sampled from a nucleus, which has no rare tokens."""
    for name in study.run.methods:
        method, training = study.method(name), study.training_of(name)
        if training.top_p < 1 and method.part("selection").silences_candidates:
            cause = f"rollouts have top_p {training.top_p:g}: they contain hardly a token of low probability"
            yield f"methods.{name}: {cause}, so that S2T silences next to nothing; set training.top_p: 1.0"


def unlike_training(study: Study) -> Iterator[str]:
    """Yield a line for each way in which benchmarks ask or read answers otherwise than the training."""
    benchmarks: dict[str, list[str]] = {}
    training = study.training
    asked = " ".join(training.instruction.split())
    for name in study.run.benchmarks if study.run.methods else ():
        if " ".join(instruction_of(study.task(name)).split()) != asked:
            message = "the instruction is not that of the training; if this is not intended, set"
            benchmarks.setdefault(f"{message} benchmarks.NAME.instruction", []).append(name)
        given, read = study.benchmarks[name].answer, study.answer(name)
        rewarded, message = reader_name(training.reward), f"answers are read as {reader_name(read)}"
        if not is_built_in(training.reward) and given is None:
            message += f", whatever the reward {rewarded} reads; set benchmarks.NAME.answer"
            benchmarks.setdefault(message, []).append(name)
        elif is_built_in(training.reward) and read != training.reward:
            message += f", in the training as {rewarded}"
            message += ", so that a response without this text is wrong" * isinstance(read, dict)
            message += f"; if this is not intended, {'remove' if given else 'set'}"
            benchmarks.setdefault(f"{message} benchmarks.NAME.answer", []).append(name)
    for message, names in benchmarks.items():
        yield f"benchmarks {', '.join(names)}: {message}"


def unused(study: Study) -> Iterator[str]:
    """Yield a line for each method of the study's own that nothing uses; those of `paper` are for choice."""
    section = study.interventions
    known = {*METHODS, *read_study(STUDIES / "paper" / "paper.yaml").methods}
    names = [*study.run.methods, *section.methods, *[section.method] * bool(section.checkpoints)]
    used = {ancestor for name in names for ancestor in study.lineage(name)}
    for name in study.methods:
        if name not in used | known:
            yield f"methods.{name}: not in run.methods, so it is not trained; add it, or remove this"


DOUBTS = (Study.unpinned, idle, unused, unlike_training, filtered, few_left_out)
"""What yields a line for each doubt."""


def file_lines(study: Study) -> Iterator[str]:
    """Yield a line for each file of the study's own, with the number and checksum of its content."""
    content = resolved_content(study)
    for path, (keys, _) in NAMED.items():
        for section, place in matching(content, path):
            if all(key in section for key in keys):  # Others are not read in this study.
                values = ", ".join(f"{key}: {section[key]}" for key in keys)
                yield f"{'.'.join(map(str, place))}: {section[place[-1]]}; {values}"


def print_check(study: Study, console: Console) -> None:
    """Print what a study would run, the settings of its methods, and the doubts."""
    document = check_document(study)
    number = len(document["trainings"])
    lines = [
        f"{document['study']}: {number} training{'s' * (number != 1)} of {document['steps']} steps, "
        f"{len(document['checkpoints'])} checkpoints x {len(document['decodings'])} decodings, "
        f"{document['responses']} responses each"
    ]
    for name in study.run.methods:
        method = study.method(name)
        shown = {key: value for key, value in method.effective.items() if value is not None}
        given = ", ".join(f"{key} {value}" for key, value in shown.items())
        lines += [f"{name}: {method.title}: {method.source}", f"  {given}"]
    if differs := document["differing"]:
        lines.append(f"differs from the paper: {', '.join(differs)}")
    warnings = (f"warning: {line}" for line in document["warnings"])
    lines += [*document["own"], *document["models"], *warnings]
    console.print(Text("\n".join(lines)), soft_wrap=True)
