# Names: paths of this study, logs beside their outputs, commands and fingerprints of stages.
import re
from math import ceil

from stapo.core.checksums import SUMS
from stapo.suite.operations import memory
from stapo.suite.study import Checkpoint, StudyError
from stapo.suite.study.checks import slug
from stapo.suite.study.reading import resolved_path
from stapo.suite.training.launch import NOTICE

# -P: no module in the working directory is imported.
STAPO = "OMP_NUM_THREADS={threads} {sys.executable:q} -P -m stapo run"
STUDY_FILE = resolved_path(STUDY)
STUDY_NAMED = session.file_of(workflow)
RESOURCES = workflow.resource_settings


def at(path):
    """Fill in the name of the study; the other wildcards stay."""
    return path.replace("{study}", STUDY.name)


def weights_at(path):
    """The file of a directory of weights that rules name: its checksums.

    Of a directory, Snakemake would compare the time, and remove it with its weights before the job that makes it.
    """
    return f"{at(path)}/{SUMS}"


def kept(outputs):
    """Outputs that stay until their successors are complete: each job writes its files atomically."""
    return [update(path) for path in outputs]


def one_of(names):
    """The regular expression of some names."""
    return "|".join(re.escape(str(name)) for name in names)


def log_of(path):
    """The log of an output has its path, with results replaced by logs."""
    return re.sub(r"^results/", "logs/", at(path)) + ".log"


def run(stage, name=""):
    """The command of a job; `name` may contain wildcards."""
    job = re.sub(r"{(\w+)}", r"{wildcards.\1:q}", name)
    return f"{STAPO} {stage} {job} --study {{STUDY_FILE}}"


def made_by(stage, name=""):
    """The param of a rule: the fingerprint of the job. `stapo status` says which setting changed."""
    return lambda w: JOBS.param(stage, name.format(**w))


def checkpoint_of(w):
    """The checkpoint of a job."""
    return Checkpoint.parse(w.checkpoint)


def in_profile(name, rule, default=None):
    """What a profile or the command line says about a resource of a rule, or of all rules."""
    for resources in (
        RESOURCES.overwrite_resources.get(rule),
        RESOURCES.default_resources,
    ):
        if resources and name in resources:
            return resources[name].raw
    return default


# Seconds before the time limit of a training at which Slurm tells it to save and end; at most half of the limit.
NOTICE_SECONDS = min(3600, 30 * int(in_profile("runtime", "train", 24 * 60)))


DEVICES = ("cpu", 1)
if STUDY.gpus_of("train"):
    DEVICES = ("h100", int(in_profile("gpu", "train", STUDY.gpus_of("train"))))


# Stages whose jobs run on the CPUs of this machine: it has no cluster, and they get no GPU.
ON_CPU = [
    stage
    for stage in memory.SETTING
    if workflow.nodes is None
    and not int(in_profile("gpu", stage, STUDY.gpus_of(stage)))
]
MEMORY = {"mem_mb", "mem_mib", "mem"}
if ON_CPU and MEMORY.isdisjoint(RESOURCES.resources):
    # A job that needs more is taken to need all of it: it starts alone.
    workflow.register_resource("mem_mb", int(memory.machine_bytes() / 1e6))


def needed(stage, w):
    """The bytes that a job needs; 0 if the shape of its model is not known yet."""
    try:
        return memory.needed_bytes(STUDY, stage, model_of(w), w.get("method", ""))
    except StudyError:
        return 0


def model_of(w):
    """The base model of a job."""
    return w.get("model") or checkpoint_of(w).model


def memory_of(stage):
    """The resource for the memory of a job that runs on the CPUs of this machine."""
    megabytes = lambda w: ceil(needed(stage, w) / 1e6)
    return {"mem_mb": megabytes} if stage in ON_CPU else {}


def cores_of(stage):
    """One thread; all cores together where memory has room for fewer jobs than there are cores."""

    def cores(w):
        fitting = memory.machine_bytes() // max(needed(stage, w), 1)
        return max((RESOURCES.cores or 1) // max(int(fitting), 1), 1)

    return cores if stage in ON_CPU else 1
