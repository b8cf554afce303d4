"""The dose: in how many updates a method acts, on how many tokens, and by how much."""

from math import inf
from statistics import fmean

from stapo.suite.analysis.artefacts import Artefacts, Trained, trained
from stapo.suite.analysis.curves import values_of
from stapo.suite.analysis.formats import METHOD, MODEL, Column, Table, estimated
from stapo.suite.evaluation.statistics import Interval, mean_of_seeds
from stapo.suite.exhibits import Exhibit
from stapo.suite.study import TrainingRun

EXHIBIT = Exhibit(order=20, title="Dose of the methods")
CHANGE = "Change of their weights [%]"
"""The only share of it that may be more than 100 %."""


def dose(artefacts: Artefacts, run: TrainingRun) -> dict[str, float]:
    """Return the dose of a training: heading of a column -> value."""
    kept, touched, silenced, weight = (
        values_of(artefacts, run, name)
        for name in ("kept_fraction", "touched_fraction", "silenced_fraction", "touched_weight")
    )
    dropped = 1 - kept
    return {
        "Updates in which it acts [%]": 100 * float(((dropped > 0) | (touched > 0)).mean()),
        "Candidates silenced [% of tokens]": float(silenced.mean()),
        "Tokens not kept [%]": 100 * float(dropped.mean()),
        "Tokens touched [%]": 100 * float(touched.mean()),
        CHANGE: 100 * float(weight.mean()),
    }


def make(artefacts: Artefacts) -> Table:
    """Return the table of doses, a row for each model and method."""

    def column(heading: str) -> Column[Trained]:
        def mean(row: Trained) -> Interval:
            values = [fmean(dose[heading] for dose in unit) for unit in row.units]
            return mean_of_seeds(values, least=0, most=inf if heading == CHANGE else 100)

        return estimated(heading, mean)

    rows = trained(artefacts.study, lambda run: dose(artefacts, run))
    return Table(
        columns=[MODEL, METHOD, *map(column, rows[0].units[0][0])],
        rows=rows,
        caption="What each method does to an update, compared with the clipped surrogate with the same clip "
        "in which every token counts. In brackets: 95 % intervals over training seeds (Student's t).",
        notes=[
            "A method acts in an update if it changes the weight of a token in the gradient. The change of "
            "weights is the sum of all changes, of the sum of all weights: 100 % is as much as the update "
            "itself. KL term, divisor and mean of the loss, and the gradient of entropies, are not in it.",
            "Candidates have A > 0 and a probability below tau_p; tokens not kept are all that a "
            "selection leaves out.",
        ],
    )
