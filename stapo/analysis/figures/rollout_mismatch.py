"""By how much the log-probabilities of vLLM and of the trainer differ."""

from typing import Any

from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=170, title="Mismatch of vLLM and trainer", needs="vllm")


def make(artefacts: Any) -> Any:
    """Return the chart."""
    from stapo.analysis.steps import over_steps

    return over_steps(
        artefacts,
        "rollout_mismatch",
        EXHIBIT.title,
        "mean |log p(vLLM) - log p(trainer)| [nats per token]",
    )
