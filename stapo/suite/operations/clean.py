"""What of a study's work directories only saves time later, and can be removed: `stapo clean`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from stapo.core.checkpoints import step_checkpoints
from stapo.suite import paths
from stapo.suite.job import recorded_in
from stapo.suite.jobs import jobs_of
from stapo.suite.jobs.train import trained
from stapo.suite.locks import holders
from stapo.suite.study import Study

USE = "a training with more steps would go on from them, instead of from the base model"


def removable(study: Study) -> Iterator[Path]:
    """Yield the step checkpoints of each training that is finished and that no process works on."""
    for job in jobs_of(study).all("train"):
        done = trained(job)
        lock = done.parent / "lock"
        is_used = lock.exists() and holders(lock.stat().st_ino)
        if recorded_in(done / paths.RECORD_FILE) == job.fingerprint and not is_used:
            yield from step_checkpoints(done.parent)


def clean(study: Study, console: Console, remove: bool) -> None:
    """Print the step checkpoints of finished trainings with their sizes; remove them if asked to."""
    total = 0
    for checkpoint in removable(study):
        size = sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())
        total += size
        console.print(Text(f"{size / 1e9:8.3f} GB  {checkpoint}"), soft_wrap=True)
        if remove:
            shutil.rmtree(checkpoint)
    done = (
        "removed" if remove else "step checkpoints of finished trainings; remove them with --remove"
    )
    console.print(Text(f"{total / 1e9:8.3f} GB  {done}"), soft_wrap=True)
    if total:
        console.print(Text(USE), style="dim", soft_wrap=True)
