# Names: paths of this study, logs beside their outputs, rule names.


def at(path):
    """Fill in the name of the study; the other wildcards stay."""
    return path.replace("{study}", STUDY.name)


def log_of(path):
    """The log of an output has its path, with results replaced by logs."""
    return re.sub(r"^results/", "logs/", at(path)) + ".log"


def slug(name):
    return re.sub(r"\W", "_", name)
