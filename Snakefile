# The whole of a study: prompts -> base model -> train -> generate -> score -> tables, figures, report.
#
#   snakemake --configfile workflows/studies/quickstart/smoke.yaml                everything of the smoke study
#   snakemake table_t1_0_p1_0 --configfile ...                         one table
#   snakemake method_stapo --configfile ...                            one method
#   snakemake results/smoke/scores/tiny/base/t1.0-p1.0/chain-3.parquet --configfile ...   any file
#
# All cores, and what a run needs to survive kills, are in profiles/default, which Snakemake finds by itself;
# --workflow-profile replaces it.
import os
import re
import shlex
import signal
import sys
from functools import partial
from math import ceil
from pathlib import Path

from snakemake.io import _IOFile
from snakemake.persistence import FileBackupMixin
from snakemake.utils import min_version

# Snakemake looks for modules in this directory first, and it is most often the working directory.
sys.path.sort(key=lambda path: path == workflow.basedir)

from stapo.suite import locks, paths
from stapo.suite.jobs import jobs_of
from stapo.suite.operations import memory, terminal, timestamps
from stapo.core.checksums import SUMS
from stapo.suite.study.checks import slug
from stapo.suite.study.loader import shown_path
from stapo.suite.study.reading import VARIABLE, read_resolved, resolved_path, write_resolved
from stapo.suite.study import Checkpoint, StudyError, read_study
from stapo.suite.training.launch import NOTICE

min_version("9.27")


report: "workflows/report/study.rst"


try:
    # The files again, with our loader: Snakemake's keeps the last of two equal keys and knows no lines.
    if workflow.is_main_process or VARIABLE not in os.environ:
        STUDY = read_study(
            *workflow.overwrite_configfiles, changes=workflow.config_settings.config
        )
    else:
        # A job that starts Snakemake again, on a cluster: its study is the one that it was made for,
        # whatever the files say by now.
        STUDY = read_resolved(Path(os.environ[VARIABLE]))
except StudyError as error:
    terminal.tell(error.errors if config else terminal.NO_STUDY)
    sys.exit(2)

RUN = STUDY.run
RESOURCES = workflow.resource_settings
JOBS = jobs_of(STUDY)
STUDY_FILE = resolved_path(STUDY)
# In messages.
STUDY_NAMED = shlex.join(
    shown_path(Path(file)) for file in workflow.overwrite_configfiles
)
# -P, and the variable for what jobs start in turn: no typer.py or torch.py in the working directory is imported.
os.environ.update(PYTHONSAFEPATH="1")
os.environ[VARIABLE] = STUDY_FILE
os.environ[locks.VARIABLE] = os.path.abspath(locks.JOBS_LOCK.format(study=STUDY.name))
# Slurm sends the notice of a time limit to all processes of a job. Only the training acts on it: others must
# not end of it, and inherit from here that they ignore it.
signal.signal(NOTICE, signal.SIG_IGN)
if workflow.is_main_process:
    timestamps.settle(STUDY)
# Records decide what is made again. Snakemake's own checksums of small inputs would say of results which a failed job
# left that they are up to date, and its backups would be copied over results and, through hard links, into work/.
_IOFile.is_checksum_eligible = timestamps.never
FileBackupMixin.backup_output = FileBackupMixin.cleanup_backup = lambda self, path: None
FileBackupMixin.restore_output = lambda self, path: True
STAPO = "OMP_NUM_THREADS={threads} {sys.executable:q} -P -m stapo run"


include: "workflows/rules/common.smk"


wildcard_constraints:
    size=one_of(RUN.sizes),
    method=one_of(RUN.methods),
    seed=r"\d+",
    checkpoint=one_of(STUDY.checkpoints()),
    decoding=one_of(RUN.decodings),
    benchmark=one_of(STUDY.run.benchmarks),


include: "workflows/rules/prepare.smk"
include: "workflows/rules/train.smk"
include: "workflows/rules/intervene.smk"
include: "workflows/rules/evaluate.smk"
include: "workflows/rules/analyse.smk"


# What the terminal shows. Snakemake's own output and that of the jobs: -p or --verbose.
OUTPUT = workflow.output_settings
if workflow.is_main_process and not (
    OUTPUT.verbose
    or OUTPUT.printshellcmds
    or OUTPUT.debug_dag
    or {"ALL", "PROGRESS"} & {one.name for one in OUTPUT.quiet or ()}
):
    ON = ("h200", int(in_profile("gpu", "train", 8)))
    for own in [one for one in logger.handlers if one.name == "DefaultStreamHandler"]:
        logger.removeHandler(own)
        logger.addHandler(
            terminal.Terminal(
                own,
                STUDY,
                ON if STUDY.gpus_of("train") else ("cpu", 1),
                dry=OUTPUT.dryrun,
            )
        )
    # The jobs' output goes to their logs alone. Snakemake would take another command for a change of the rule.
    shell.prefix("set -euo pipefail; exec >/dev/null; ")


def stopped(kind, *error):
    """Ctrl-C before the first job, of which Snakemake would show where it was."""
    if kind is KeyboardInterrupt:
        print(terminal.command(), file=sys.stderr)
    else:
        sys.__excepthook__(kind, *error)


sys.excepthook = stopped


def interrupt_once(number, frame):
    """A second Ctrl-C, which the jobs get too, would end Snakemake before it has told how to go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


if workflow.is_main_process:
    signal.signal(signal.SIGINT, interrupt_once)


# Seconds each, or downloads: on a cluster they run where Snakemake does.
localrules:
    all,
    prompts,
    overlap,
    base_model,
    weights,
    evidence,
    figures,
    report,
    provenance,


# Not in a dry run.
onstart:
    try:
        locks.claim_study(STUDY.name)
    except locks.BusyError as error:
        terminal.tell([error])
        sys.exit(2)
    # Before this version of the study is written: reasons compare with the earlier ones.
    terminal.tell(
        terminal.first_lines(STUDY, STUDY_NAMED, os.path.relpath(log[0]), ON_CPU)
    )
    write_resolved(STUDY)


onsuccess:
    terminal.tell_end(STUDY, STUDY_NAMED, succeeded=True)


onerror:
    terminal.tell_end(STUDY, STUDY_NAMED, succeeded=False)


# Must stand here: a rule of an included file cannot be the default target.
rule all:
    default_target: True
    input:
        JOBS.published(),
        at(paths.CHECKSUMS),
