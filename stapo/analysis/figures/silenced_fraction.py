"""Share of the tokens of each step that are silenced."""

from typing import Any

from stapo.exhibits import PAPER_SILENCED, Exhibit

EXHIBIT = Exhibit(order=50, title="Silenced candidates")


def make(artefacts: Any) -> Any:
    """Return the chart."""
    from stapo.analysis.steps import over_steps

    return over_steps(
        artefacts,
        "silenced_fraction",
        EXHIBIT.title,
        "silenced [% of tokens]",
        log=True,
        reference=(PAPER_SILENCED, "paper: below 0.01 % nearly throughout"),
    )
