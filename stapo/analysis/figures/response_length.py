"""Mean length of the responses of each step."""

from typing import Any

from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=150, title="Response length")


def make(artefacts: Any) -> Any:
    """Return the chart."""
    from stapo.analysis.steps import over_steps

    return over_steps(artefacts, "response_length", EXHIBIT.title, "response length [tokens]")
