"""A run of Snakemake: the study that it is of, and what this pipeline changes of Snakemake, with the reasons.

It uses names of Snakemake 9.27 that are no interface: the lock pins the version, and tests/pipeline runs it.
"""

import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from snakemake.io import _IOFile
from snakemake.persistence import FileBackupMixin

from stapo.suite import locks
from stapo.suite.operations import terminal, timestamps
from stapo.suite.study import Study, StudyError, read_study
from stapo.suite.study.loader import shown_path
from stapo.suite.study.reading import VARIABLE, read_resolved, resolved_path
from stapo.suite.training.launch import NOTICE


def study_of(workflow: Any, config: Mapping[str, Any]) -> Study:
    """Return the study of a run; end with its errors, one line each.

    The files are read again, with our loader: Snakemake's keeps the last of two equal keys and knows no
    lines. A job that starts Snakemake again, on a cluster, has the study that it was made for, whatever the
    files say by now.
    """
    try:
        if workflow.is_main_process or VARIABLE not in os.environ:
            changes = workflow.config_settings.config
            return read_study(*workflow.overwrite_configfiles, changes=changes)
        return read_resolved(Path(os.environ[VARIABLE]))
    except StudyError as error:
        terminal.tell(error.errors if config else terminal.NO_STUDY)
        sys.exit(2)


def file_of(workflow: Any) -> str:
    """Return the file of the study, as messages name it."""
    return shlex.join(shown_path(Path(file)) for file in workflow.overwrite_configfiles)


def start(workflow: Any, study: Study) -> None:
    """Set what jobs inherit, and let records decide what is made again."""
    # For what jobs start in turn: no typer.py or torch.py in the working directory is imported.
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ[VARIABLE] = resolved_path(study)
    os.environ[locks.VARIABLE] = os.path.abspath(locks.JOBS_LOCK.format(study=study.name))
    # Slurm sends the notice of a time limit to all processes of a job. Only the training acts on it: others
    # must not end of it, and inherit from here that they ignore it.
    signal.signal(NOTICE, signal.SIG_IGN)
    # Snakemake's own checksums of small inputs would say of results which a failed job left that they are up
    # to date, and its backups would be copied over results and, through hard links, into work/.
    _IOFile.is_checksum_eligible = timestamps.never
    FileBackupMixin.backup_output = FileBackupMixin.cleanup_backup = lambda self, path: None
    FileBackupMixin.restore_output = lambda self, path: True
    sys.excepthook = _stopped
    if workflow.is_main_process:
        timestamps.settle(study)
        signal.signal(signal.SIGINT, _interrupt_once)


def show(workflow: Any, study: Study, logger: logging.Logger, devices: tuple[str, int]) -> bool:
    """Show a line per job instead of Snakemake's own output, and return whether that is so.

    Snakemake's own: -p or --verbose. `devices` are kind and number of the GPUs of a training.
    """
    output = workflow.output_settings
    quiet = {"ALL", "PROGRESS"} & {kind.name for kind in output.quiet or ()}
    own = output.verbose or output.printshellcmds or output.debug_dag or quiet
    if own or not workflow.is_main_process:
        return False
    for handler in [each for each in logger.handlers if each.name == "DefaultStreamHandler"]:
        logger.removeHandler(handler)
        logger.addHandler(terminal.Terminal(handler, study, devices, dry=output.dryrun))
    return True


def claim(study: Study) -> None:
    """Lock the study for this run; end with a line if another run has it."""
    try:
        locks.claim_study(study.name)
    except locks.BusyError as error:
        terminal.tell([error])
        sys.exit(2)


def _stopped(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Ctrl-C before the first job, of which Snakemake would show where it was."""
    if kind is KeyboardInterrupt:
        print(terminal.command(), file=sys.stderr)  # noqa: T201
    else:
        sys.__excepthook__(kind, error, trace)


def _interrupt_once(number: int, frame: FrameType | None) -> NoReturn:
    """A second Ctrl-C, which the jobs get too, would end Snakemake before it has told how to go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
