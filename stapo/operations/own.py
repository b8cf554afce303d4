"""What of a study is its own: files that it names, with the checksums that pin their content."""

from collections.abc import Iterator

from stapo.study import Study
from stapo.study.schema import FileData, FolderModel


def own_lines(study: Study) -> Iterator[str]:
    """Yield a line for each file of a study, with what it has been found to contain."""
    for size in study.run.sizes:
        model = study.models[size]
        if isinstance(model, FolderModel):
            yield f"models.{size}: {model.path}; sha256: {model.sha256}"
    data = study.data
    if isinstance(data, FileData):
        yield f"data: {data.rows} rows in {data.file}; sha256: {data.sha256}"
    for name in dict.fromkeys(study.evaluated()):
        own = study.benchmarks[name]
        if own.file:
            yield f"benchmarks.{name}: {own.rows} problems in {own.file}; sha256: {own.sha256}"
