"""The tables of evidence of a study: which function computes which."""

from collections.abc import Callable

from stapo.analysis import (
    ablation,
    claims,
    hyperparameters,
    intervention_exhibits,
    stability,
)
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.cases import case_table
from stapo.analysis.evidence.frequencies import frequency_table
from stapo.analysis.evidence.quadrants import quadrant_table
from stapo.analysis.evidence.taxonomy import taxonomy_table, taxonomy_v2_table
from stapo.analysis.grids import Grid

GRIDS: dict[str, Callable[[Artefacts], Grid]] = {
    "quadrants": quadrant_table,
    "taxonomy": taxonomy_table,
    "taxonomy_v2": taxonomy_v2_table,
    "token_frequencies": frequency_table,
    "cases": case_table,
    "verdicts": claims.table,
    "hyperparameters": hyperparameters.table,
    "stability": stability.table,
    "ablation": ablation.table,
    "interventions": intervention_exhibits.table,
}
"""Name in `stapo.exhibits.TABLES` -> function that returns the table."""
