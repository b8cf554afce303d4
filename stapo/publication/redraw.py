"""Check that tables, figures and report follow from scores and records: their stages make them again."""

from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from stapo import paths
from stapo.publication import untrusted
from stapo.publication.folder import FILE_BYTES, Results
from stapo.stages import Resources, jobs_of, module

STAGES = ("tables", "evidence", "figures", "report")


def drawn_errors(results: Results) -> Iterator[str]:
    """Yield a line for each table, figure or report that does not follow from the results."""
    of, folder = jobs_of(results.study), paths.RESULTS.format(study=results.study.name)
    jobs = {stage: list(of.all(stage)) for stage in STAGES}
    outputs = [path for own in jobs.values() for job in own for path in job.outputs]
    made = {path.removeprefix(f"{folder}/").partition("/")[0] for path in outputs}
    with TemporaryDirectory() as scratch:
        again = Path(scratch)
        (again / folder).mkdir(parents=True)
        for entry in results.folder.iterdir():
            if entry.name not in made:
                (again / folder / entry.name).symlink_to(entry)
        with chdir(again), redirect_stdout(StringIO()):
            for stage, own in jobs.items():
                module(stage).run(of, own, Resources())
        for path in outputs:
            if not _is_same(results.root / path, again / path):
                yield f"{path}: does not follow from scores, responses and records"


def _is_same(stated: Path, found: Path) -> bool:
    with untrusted.open_regular(stated, FILE_BYTES) as stream:
        return stream.read() == found.read_bytes()
