"""Share of the tokens of each step that are silenced."""

from typing import Any

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.curves import over_steps
from stapo.exhibits import PAPER_SILENCED, Exhibit

EXHIBIT = Exhibit(order=50, title="Silenced candidates")


def make(artefacts: Artefacts) -> Any:
    """Return the share of silenced tokens over the steps, with the arguments of each selection."""
    study = artefacts.study
    methods = [study.method(name) for name in study.run.methods]
    arguments = "; ".join(
        f"{one.title}: {', '.join(f'{name} {value}' for name, value in one.arguments.items())}"
        for one in methods
        if "tau_p" in one.arguments
    )
    return over_steps(
        artefacts,
        name="silenced_fraction",
        title=EXHIBIT.title,
        label="silenced [% of tokens]",
        log=True,
        reference=(PAPER_SILENCED, "paper: below 0.01 % nearly throughout"),
        more=f" {arguments}." * bool(arguments),
    )
