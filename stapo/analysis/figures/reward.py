"""Mean reward of the responses of each step."""

from typing import Any

from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=20, title="Reward")


def make(artefacts: Any) -> Any:
    """Return the chart."""
    from stapo.analysis.steps import over_steps

    return over_steps(artefacts, "reward", EXHIBIT.title, "mean reward [-1 to 1]")
