"""The figures of a study: which function computes which."""

from collections.abc import Callable
from functools import partial

from stapo.analysis import (
    ablation,
    curves,
    intervention_exhibits,
    tradeoff,
)
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import Chart
from stapo.analysis.evidence.bounds import bounds_chart
from stapo.analysis.evidence.entropy_quantiles import quantile_chart
from stapo.analysis.evidence.frequencies import frequency_chart
from stapo.analysis.evidence.positions import position_chart
from stapo.analysis.evidence.quadrants import quadrant_chart
from stapo.exhibits import FIGURES

CHARTS: dict[str, Callable[[Artefacts], Chart]] = {
    **{
        name: partial(curves.quantity, name=name)
        for name, figure in FIGURES.items()
        if figure.value is not None
    },
    "accuracy": curves.accuracy_over_steps,
    "entropy_quantiles": quantile_chart,
    "quadrants": quadrant_chart,
    "pareto": tradeoff.pareto,
    "full_mask": tradeoff.full_mask,
    "ablation": ablation.chart,
    "entropy_change": intervention_exhibits.entropy_change,
    "interventions": intervention_exhibits.differences,
    "gradient_bounds": bounds_chart,
    "token_frequencies": frequency_chart,
    "silenced_by_position": position_chart,
}
"""Name in `stapo.exhibits.FIGURES` -> function that returns its chart."""
