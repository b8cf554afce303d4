"""What of a study is its own: files that it names, with the checksums that pin their content."""

from collections.abc import Iterator

from stapo.study import Study


def own_lines(study: Study) -> Iterator[str]:
    """Yield a line for each file of a study, with what it has been found to contain."""
    for name in dict.fromkeys(study.evaluated()):
        own = study.benchmarks[name]
        if own.file:
            yield f"benchmarks.{name}: {own.rows} problems in {own.file}; sha256: {own.sha256}"
