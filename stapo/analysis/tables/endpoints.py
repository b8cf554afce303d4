"""Endpoints of the trainings, and differences between methods over trainings."""

from math import isfinite

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.endpoints import ENDPOINTS, EndpointRow, endpoint_rows
from stapo.analysis.table import METHOD, SIZE, Column, Table, estimated
from stapo.evaluation.statistics import mean_of_seeds
from stapo.exhibits import Exhibit

EXHIBIT = Exhibit(order=15, title="Endpoints of the trainings")


def make(artefacts: Artefacts) -> Table:
    """Return the table of endpoints, a row for each size, endpoint and method."""
    study = artefacts.study
    primary = study.compare.endpoint if study.compare else None

    def named(row: EndpointRow) -> str:
        return ENDPOINTS[row.endpoint][0] + (" (primary)" if row.endpoint == primary else "")

    columns: list[Column[EndpointRow]] = [
        SIZE,
        Column("Endpoint", named, text=True),
        METHOD,
        Column("Training seeds", lambda row: len(row.values)),
        estimated("Mean", lambda row: mean_of_seeds(row.values), ".3g"),
        Column("Differences", _gaps, text=True),
    ]
    which = (
        f"The study named its primary endpoint before it ran: {ENDPOINTS[primary][0]}. Others are secondary."
        if primary
        else "The study named no primary endpoint: all are secondary."
    )
    return Table(
        columns=columns,
        rows=[*endpoint_rows(artefacts)],
        caption="Endpoints: one number for each training, with 95 % intervals over training seeds (Student's "
        "t for means, Welch's for differences). p: exact test over all exchanges of the trainings of two "
        "methods. Detectable: difference that is found with a probability of 80 %.",
        notes=[
            which,
            "If some trainings collapse, these intervals contain the truth less often than in 95 % of the "
            "cases: docs/evaluation.md. With three seeds of each method, the exact p is at least 0.1.",
            "Accuracy is that of the last weights under the first decoding, Avg over the benchmarks.",
        ],
    )


def _gaps(row: EndpointRow) -> str:
    """Return the differences of the targets and a method in words."""
    found = []
    for gap in row.gaps:
        value, bounds = gap.value, ""
        if isfinite(value.low):
            bounds = f" [{value.low:+.3g}, {value.high:+.3g}], detectable {gap.detectable:.2g}"
        p_value = f", p = {gap.p_value:.3f}" if isfinite(gap.p_value) else ""
        found.append(f"{gap.target} minus it {value.value:+.3g}{bounds}{p_value}")
    return "; ".join(found)
