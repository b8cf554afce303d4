"""Policy entropy over the steps."""

from typing import Any

from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=10, title="Policy entropy")


def make(artefacts: Any) -> Any:
    """Return the chart."""
    from stapo.analysis.steps import over_steps

    return over_steps(
        artefacts, "entropy", EXHIBIT.title, "policy entropy [nats per token]", log=True
    )
