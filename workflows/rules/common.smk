# Names: paths of this study, logs beside their outputs, rule names.


def at(path):
    """Fill in the name of the study; the other wildcards stay."""
    return path.replace("{study}", STUDY.name)


def one_of(names):
    """The regular expression of some names."""
    return "|".join(re.escape(str(name)) for name in names)


def log_of(path):
    """The log of an output has its path, with results replaced by logs."""
    return re.sub(r"^results/", "logs/", at(path)) + ".log"


def reported(outputs, ending, caption, **options):
    """Outputs of a rule, of which `snakemake --report` shows those with an ending.

    Args:
        outputs: paths of the outputs.
        ending: such as `.csv`.
        caption: name of the file in `workflows/report` that describes them.
        options: category and labels.
    """
    # Snakemake's parser takes the word at the beginning of a line for its directive.
    shown = partial(report, caption=f"../report/{caption}.rst", **options)
    return [shown(path) if path.endswith(ending) else path for path in outputs]


def judge_options(directory):
    """Options of `stapo score` for the study's verifier, none without one."""
    return f"--verifier {shlex.quote(str(directory))}" if directory else ""


def checkpoint_of(w):
    """The checkpoint of a job."""
    return Checkpoint.parse(w.checkpoint)


def run_of(w):
    """The training of a job."""
    return TrainingRun(w.size, w.method, int(w.seed))


def trained_by(w):
    """The fingerprint of a training."""
    return identity.train_fingerprint(STUDY, run_of(w))


def with_all(made_by):
    """A param for what is not among a job's own settings, so that a reason says which of them it is."""
    return f"fingerprint={made_by}"


def one_by_one(of, kinds):
    """Params, one for each setting, so that a reason names what changed.

    Snakemake compares the params of a job as a set: a setting that only other jobs of the rule have
    repeats one that the job has.

    Args:
        of: the settings of a job, from its wildcards.
        kinds: the settings of one job of each kind that the rule has.
    """

    def param(key):
        return lambda w: of(w).get(key) or next(iter(of(w).values()))

    return [
        param(key) for key in dict.fromkeys(key for found in kinds for key in found)
    ]


def the_same(found):
    """Params, one for each setting, of a rule whose jobs all have the same."""
    return one_by_one(lambda w: found, [found])


def in_profile(name, rule, default=None):
    """What a profile or the command line says about a resource of a rule, or of all rules."""
    for resources in (
        RESOURCES.overwrite_resources.get(rule),
        RESOURCES.default_resources,
    ):
        if resources and name in resources:
            return resources[name].raw
    return default


def retries(attempts):
    """Retries of a job that needs several attempts, three more for errors; of one, what `--retries` says."""
    return attempts + 2 if attempts > 1 else None


CLUSTER = limits.Cluster(
    gpu=in_profile("gpu_kind", "train", limits.Cluster.gpu),
    gpus=in_profile("gpu", "train", STUDY.gpus_of("train")),
    max_hours=in_profile("max_hours", "train"),
)
