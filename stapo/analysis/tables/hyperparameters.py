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
        stated = (one["value"], one["confidence"])
        values = {name: (getattr(own, one["setting"]), *stated) for name, own in training.items()}
        yield from _grouped(study, one["setting"], values, one.get("elsewhere", ""))


def _of_methods(study: Study) -> Iterator[Setting]:
    known = paper()["hyperparameters"]
    values: dict[str, dict[str, tuple[Any, Any, str]]] = {}
    for name in study.run.methods:
        method, stated = study.method(name), known["methods"].get(study.origin_of(name), {})
        own = {key: getattr(method, key) for key in OF_METHODS} | dict(method.arguments)
        for key, ours in own.items():
            letter = "L" if key in stated.get("inferred", ()) else stated.get("confidence", "")
            says = (stated[key], letter) if key in stated else (None, "")
            values.setdefault(key, {})[name] = (ours, *says)
    for key in values:
        yield from _grouped(study, key, values[key], known["elsewhere"].get(key, ""))


def _grouped(
    study: Study, setting: str, values: Mapping[str, tuple[Any, Any, str]], elsewhere: str
) -> Iterator[Setting]:
    """Yield a row for all methods with the same value here and in the paper."""
    for value in dict.fromkeys(values.values()):
        names = [name for name, own in values.items() if own == value]
        everyone = len(names) == len(study.run.methods)
        titles = "all" if everyone else ", ".join(study.method(name).title for name in names)
        yield Setting(setting.replace("_", " "), titles, *value, elsewhere)


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
