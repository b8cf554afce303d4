"""What of a study is its own: files that it names, with the checksums that pin their content."""

from collections.abc import Iterator

from stapo.study import Study
from stapo.study.sources import FileData, FolderModel


def own_lines(study: Study) -> Iterator[str]:
    """Yield a line for each file of a study, with what it has been found to contain."""
    for size in study.run.sizes:
        model = study.models[size]
        if isinstance(model, FolderModel):
            yield f"models.{size}: {model.path}; sha256: {model.sha256}"
    for method in map(study.method, study.run.methods):
        if method.is_own:
            yield f"{method.title}: runs {method.selection}; sha256: {method.selection_sha256}"
    if ":" in study.training.reward:
        checksum = study.training.reward_sha256
        yield f"training.reward: runs {study.training.reward}; sha256: {checksum}"
    data = study.data
    if isinstance(data, FileData):
        yield f"data: {data.rows} rows in {data.file}; sha256: {data.sha256}"
    for name in dict.fromkeys(study.evaluated()):
        own = study.benchmarks[name]
        if own.file:
            yield f"benchmarks.{name}: {own.rows} problems in {own.file}; sha256: {own.sha256}"
