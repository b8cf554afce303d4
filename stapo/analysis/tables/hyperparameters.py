"""The hyperparameters of the study as run, beside the paper's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.table import Column, Table
from stapo.exhibits import Exhibit
from stapo.reference import confidence, paper
from stapo.study import Study

EXHIBIT = Exhibit(order=100, title="Hyperparameters")
OF_METHODS = ("clip_low", "clip_high", "aggregation", "kl_coefficient", "dual_clip")


@dataclass(frozen=True)
class Setting:
    """A setting of some methods."""

    name: str
    methods: str
    """Their titles, or `all`."""
    ours: Any
    stated: Any
    """By the paper; None if it does not state it."""
    letter: str = ""
    """How sure it is that the paper states it."""
    elsewhere: str = ""
    """What others say of it."""

    @property
    def source(self) -> str:
        """Return where our value comes from, and what others say."""
        about = f"; {self.elsewhere}" if self.elsewhere else ""
        if self.stated is None:
            return f"our choice: the paper does not state it{about}"
        verdict = "as in the paper" if self.ours == self.stated else "differs from the paper"
        return f"{verdict} [{confidence(self.letter)}]{about}"


COLUMNS: list[Column[Setting]] = [
    Column("Setting", lambda row: row.name, text=True),
    Column("Methods", lambda row: row.methods, text=True),
    Column("This study", lambda row: _shown(row.ours), text=True),
    Column(
        "Paper",
        lambda row: "not stated" if row.stated is None else _shown(row.stated),
        text=True,
    ),
    Column("Source", lambda row: row.source, text=True),
]


def _shown(value: Any) -> str:
    if value is None:
        return "off"
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")


def make(artefacts: Artefacts) -> Table:
    """Return the table of hyperparameters."""
    study = artefacts.study
    return Table(
        columns=COLUMNS,
        rows=[*_of_trainings(study), *_of_methods(study), *_of_evaluations(study)],
        caption="Hyperparameters of the study as run, beside those of arXiv 2602.15620.",
        notes=[
            "In brackets: how sure it is what the paper states. Settings of baselines are those of their "
            "own papers, as v4 and v5 say."
        ],
    )


def _of_trainings(study: Study) -> Iterator[Setting]:
    training = {name: study.training_of(name) for name in study.run.methods}
    for one in paper()["hyperparameters"]["training"]:
        name, known = one["setting"], (one["value"], one["confidence"], one.get("elsewhere", ""))
        values = {method: getattr(settings, name) for method, settings in training.items()}
        for titles, ours in _grouped(study, values):
            yield Setting(name.replace("_", " "), titles, ours, *known)


def _grouped(study: Study, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the titles of the methods with each value, and the value."""
    for value in dict.fromkeys(values.values()):
        names = [name for name, own in values.items() if own == value]
        everyone = len(names) == len(study.run.methods)
        yield "all" if everyone else ", ".join(study.method(name).title for name in names), value


def _of_methods(study: Study) -> Iterator[Setting]:
    """Yield the settings of methods: a row for all with the same value here and in the paper."""
    known = paper()["hyperparameters"]
    own = {
        name: {key: getattr(study.method(name), key) for key in OF_METHODS}
        | dict(study.method(name).arguments)
        for name in study.run.methods
    }
    for setting in dict.fromkeys(key for settings in own.values() for key in settings):
        values = {}
        for name, settings in own.items():
            stated = known["methods"].get(study.origin_of(name), {})
            letter = "L" if setting in stated.get("inferred", ()) else stated.get("confidence", "")
            if setting in settings:
                paper_says = (stated[setting], letter) if setting in stated else (None, "")
                values[name] = (settings[setting], *paper_says)
        for titles, (ours, says, letter) in _grouped(study, values):
            about = known["elsewhere"].get(setting, "")
            yield Setting(setting.replace("_", " "), titles, ours, says, letter, about)


def _of_evaluations(study: Study) -> Iterator[Setting]:
    known = paper()["hyperparameters"]
    for one in known["evaluation"]:
        name, ours = one["setting"], getattr(study.evaluation, one["setting"])
        yield Setting(
            f"{name.replace('_', ' ')}, evaluation", "all", ours, one["value"], one["confidence"]
        )
    for name in study.run.benchmarks:
        samples, stated = study.benchmarks[name].samples, known["samples"]["values"].get(name)
        heading, letter = f"responses per problem, {name}", known["samples"]["confidence"]
        yield Setting(heading, "all", samples, stated, letter)
