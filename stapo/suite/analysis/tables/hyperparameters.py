"""The hyperparameters of the study as run, beside the paper's."""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.formats import Column, Table
from stapo.suite.exhibits import Exhibit
from stapo.suite.reference import CONFIDENCE, paper
from stapo.suite.study import Study
from stapo.suite.study.functions import reader_name

EXHIBIT = Exhibit(order=100, title="Hyperparameters")
METHOD_SETTINGS = ("clip_low", "clip_high", "aggregation", "kl_coefficient", "dual_clip")


class Setting(NamedTuple):
    """A setting of some methods."""

    name: str
    methods: str
    """Their titles, or `all`."""
    ours: Any
    stated: Any
    """By the paper; None if it does not state it."""
    letter: str
    """How sure it is that the paper states it."""
    elsewhere: str

    @property
    def source(self) -> str:
        """Where our value comes from, and what others say."""
        remark = f"; {self.elsewhere}" if self.elsewhere else ""
        if self.stated is None:
            return f"our choice: the paper does not state it{remark}"
        verdict = "as in the paper" if self.ours == self.stated else "differs from the paper"
        return f"{verdict} [{CONFIDENCE[self.letter]}]{remark}"


def _shown(value: Any, none: str = "off") -> str:
    if value is None:
        return none
    if isinstance(value, float):
        return f"{value:g}"
    # A function in a file, or a marker before an answer, keeps its underscores.
    return value if set(str(value)) & {*':"'} else str(value).replace("_", " ")


COLUMNS: list[Column[Setting]] = [
    Column("Setting", lambda row: row.name.replace("_", " "), text=True),
    Column("Methods", lambda row: row.methods, text=True),
    Column("This study", lambda row: _shown(row.ours), text=True),
    Column("Paper", lambda row: _shown(row.stated, "not stated"), text=True),
    Column("Source", lambda row: row.source, text=True),
]


def settings(study: Study) -> list[Setting]:
    """Return the settings of a study: one for all methods with the same value here and in the paper."""
    grouped = dict[Setting, list[str]]()
    for setting in _method_settings(study):
        grouped.setdefault(setting._replace(methods=""), []).append(setting.methods)
    rows = []
    for setting, titles in grouped.items():
        methods = "all" if len(titles) == len(study.run.methods) else ", ".join(titles)
        rows.append(setting._replace(methods=methods))
    return [*rows, *_evaluation_settings(study)]


def differing(study: Study) -> list[str]:
    """Return each setting that is not as the paper states it, with both values."""
    return [
        f"{setting.name.replace('_', ' ')} {_shown(setting.ours)} (paper: {_shown(setting.stated)}"
        + (f"; {setting.methods})" if setting.methods != "all" else ")")
        for setting in settings(study)
        if setting.stated not in (None, setting.ours)
    ]


def make(artefacts: Artefacts) -> Table:
    """Return the table of `settings`."""
    return Table(
        columns=COLUMNS,
        rows=settings(artefacts.study),
        caption="Hyperparameters of the study as run, beside those of arXiv 2602.15620.",
        notes=[
            "In brackets: how sure it is what the paper states. Settings of baselines are those of their "
            "own papers, as v4 and v5 say."
        ],
    )


def _method_settings(study: Study) -> Iterator[Setting]:
    known = paper()["hyperparameters"]
    for entry, name in product(known["training"], study.run.methods):
        key, stated, letter = entry["setting"], entry["value"], entry["confidence"]
        ours = getattr(study.training_of(name), key)
        ours = reader_name(ours) if key == "reward" else ours
        yield Setting(key, study.title(name), ours, stated, letter, entry.get("elsewhere", ""))
    others = (key for name in study.run.methods for key in study.method(name).effective)
    keys = dict.fromkeys((*METHOD_SETTINGS, *others))
    for key, name in product(keys, study.run.methods):
        method, stated = study.method(name), known["methods"].get(study.origin_of(name), {})
        if key == "selection" or key not in method.effective:
            continue
        letter = "L" if key in stated.get("inferred", ()) else stated.get("confidence", "")
        paper_has = stated.get(key), letter * (key in stated), known["elsewhere"].get(key, "")
        yield Setting(key, method.title, method.effective[key], *paper_has)


def _evaluation_settings(study: Study) -> Iterator[Setting]:
    known = paper()["hyperparameters"]
    for entry in known["evaluation"]:
        name, ours = f"{entry['setting']}, evaluation", getattr(study.evaluation, entry["setting"])
        yield Setting(name, "all", ours, entry["value"], entry["confidence"], "")
    samples = known["samples"]
    for name in study.run.benchmarks:
        stated, heading = samples["values"].get(name), f"responses per problem, {name}"
        ours = study.benchmarks[name].samples
        yield Setting(heading, "all", ours, stated, samples["confidence"], "")
