"""The figures and the tables of evidence of a study: which function computes which."""

from collections.abc import Callable
from functools import partial

from stapo.analysis import ablation, curves, intervention_exhibits, stability, tradeoff
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.charts import Chart
from stapo.analysis.evidence.cases import case_table
from stapo.analysis.evidence.quadrants import quadrant_chart, quadrant_table
from stapo.analysis.grids import Grid
from stapo.exhibits import FIGURES

CHARTS: dict[str, Callable[[Artefacts], Chart]] = {
    **{
        name: partial(curves.quantity, name=name)
        for name, figure in FIGURES.items()
        if figure.value is not None
    },
    "accuracy": curves.accuracy_over_steps,
    "quadrants": quadrant_chart,
    "pareto": tradeoff.pareto,
    "full_mask": tradeoff.full_mask,
    "ablation": ablation.chart,
    "entropy_change": intervention_exhibits.entropy_change,
    "interventions": intervention_exhibits.differences,
}
"""Name in `stapo.exhibits.FIGURES` -> function that returns its chart."""

GRIDS: dict[str, Callable[[Artefacts], Grid]] = {
    "quadrants": quadrant_table,
    "cases": case_table,
    "stability": stability.table,
    "ablation": ablation.table,
    "interventions": intervention_exhibits.table,
}
"""Name in `stapo.exhibits.TABLES` -> function that returns the table."""
