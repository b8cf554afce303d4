"""Norm of the gradient of each step, before clipping."""

from typing import Any

from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=160, title="Gradient norm")


def make(artefacts: Any) -> Any:
    """Return the chart."""
    from stapo.analysis.steps import over_steps

    return over_steps(artefacts, "gradient_norm", EXHIBIT.title, "gradient norm")
