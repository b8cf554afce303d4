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


def judge_options(directory):
    """Options of `stapo score` for the study's verifier, none without one."""
    return f"--verifier {shlex.quote(str(directory))}" if directory else ""


def checkpoint_of(w):
    """The checkpoint of a job."""
    return Checkpoint.parse(w.checkpoint)


def trained_by(w):
    """The fingerprint of a training."""
    return identity.train_fingerprint(STUDY, TrainingRun(w.size, w.method, int(w.seed)))
