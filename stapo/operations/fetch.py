"""Download of everything that a study needs from the Hub, and the check of it without network.

Models go to the Hub's cache, where an interrupted download continues. Benchmark rows go to
`STAPO_DATA_DIR` if it is set, otherwise to the cache of `datasets`.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from stapo.files import replace_file
from stapo.hub import REMEDY, offline_if_unreachable, with_retries
from stapo.study import Study
from stapo.study.schema import Template
from stapo.study.sources import HubData, HubModel
from stapo.tasks import benchmark_definitions
from stapo.text import plain

Item = tuple[str, Callable[[], object]]
"""Description of what is needed, and a function that downloads it or raises an error."""


def needs(study: Study) -> Iterator[Item]:
    """Yield everything that a study needs from the network."""
    for size in study.run.sizes:
        model = study.models[size]
        if isinstance(model, HubModel):
            yield f"model {size}: {model.hub} at {model.revision[:8]}", _model(model)
    verifier = study.evaluation.verifier
    if verifier:
        pinned = HubModel(hub=verifier.hub, revision=verifier.revision)
        yield f"verifier: {verifier.hub} at {verifier.revision[:8]}", _model(pinned)
        if (wording := verifier.template) != "own":
            at = f"{wording.github} at {wording.revision[:8]}"
            yield f"verifier's template: {wording.name} of {at}", _template(wording)
    if isinstance(study.data, HubData):
        data = study.data
        yield f"prompts: {data.hub} at {data.revision[:8]}", lambda: _prompts(data)
    for name in study.evaluated():
        metadata = study.task(name)["metadata"]
        if "hub" in metadata:
            yield f"benchmark {name}: {metadata['hub']}", _rows(name)


def _model(model: HubModel) -> Callable[[], object]:
    def get() -> object:
        from stapo.models.base import cached

        return cached(model)

    return get


def _template(template: Template) -> Callable[[], object]:
    def get() -> object:
        from stapo.models.template import template_text

        return template_text(template)

    return get


def _prompts(data: HubData) -> object:
    from datasets import load_dataset

    return with_retries(lambda: load_dataset(data.hub, revision=data.revision, split=data.split))


def _rows(name: str) -> Callable[[], object]:
    metadata = benchmark_definitions()[name]["metadata"]

    def get() -> object:
        from stapo.evaluation.data import DATA_DIR, local_file
        from stapo.evaluation.task import load_rows

        directory = os.environ.pop(DATA_DIR, None)
        try:
            if directory is None:
                return load_rows(**metadata)
            path = Path(directory)
            try:
                path.mkdir(parents=True, exist_ok=True)
                local_file(path, metadata["hub"], metadata["names"])
            except FileNotFoundError:
                rows = load_rows(**metadata)["test"]
                with replace_file(path / f"{metadata['names'][0]}.jsonl") as stream:
                    stream.writelines(json.dumps(row) + "\n" for row in rows)
        finally:
            if directory is not None:
                os.environ[DATA_DIR] = directory
        return load_rows(**metadata)

    return get


def prepare_network(study: Study) -> None:
    """Set offline mode if the study needs the Hub and it cannot be reached; see `offline_if_unreachable`."""
    if any(True for _ in needs(study)):
        offline_if_unreachable()


def fetch(study: Study, say: Callable[[str], None]) -> bool:
    """Download every item, also after a failure; return whether all are available.

    Args:
        study: the study whose items are downloaded.
        say: called with one line for each item.
    """
    complete = True
    for what, get in needs(study):
        try:
            get()
        except Exception as error:  # The Hub's libraries raise many kinds of errors.
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            reason = reason.removesuffix(f"; {REMEDY}")
            # Rows with another checksum are there, and no download makes them right.
            word = "wrong" if isinstance(error, ValueError) and not error.__cause__ else "missing"
            say(f"{word:8} {what}: {plain(reason)}")
            complete = False
        else:
            say(f"ok       {what}")
    return complete
