"""What the rules say of the responses beside what they and a verifier say together."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stapo.analysis.cells import Cell
from stapo.study import Study
from stapo.study.schema import Verifier


@dataclass(frozen=True)
class Verdicts:
    """One line: both accuracies in percent, and what the verifier did, by benchmark."""

    size: str
    method: str
    title: str
    rule: dict[str, float]
    with_verifier: dict[str, float]
    flips: dict[str, int]
    """Responses that the rules reject and the verifier accepts."""
    judged: dict[str, int]
    """Responses that the verifier was asked about."""
    cut: dict[str, int]
    """Those of which it read the end only."""

    @property
    def rule_average(self) -> float:
        """Mean over the benchmarks."""
        return float(np.mean(list(self.rule.values())))

    @property
    def verifier_average(self) -> float:
        """Mean over the benchmarks."""
        return float(np.mean(list(self.with_verifier.values())))


def verdict_rows(study: Study, cells: Mapping[tuple[str, str, str], Cell]) -> list[Verdicts]:
    """Return a line for each row of the table; none without a verifier."""
    if study.evaluation.verifier is None:
        return []
    rows = []
    for size in study.run.sizes:
        for method in ("base", *study.run.methods):
            own = {b: cells[size, method, b] for b in study.run.benchmarks}
            rows.append(
                Verdicts(
                    size=size,
                    method=method,
                    title=study.title(method),
                    rule={b: 100 * cell.rule for b, cell in own.items()},
                    with_verifier={b: 100 * cell.with_verifier for b, cell in own.items()},
                    flips={b: cell.flips for b, cell in own.items()},
                    judged={b: cell.judged for b, cell in own.items()},
                    cut={b: cell.verifier_cut for b, cell in own.items()},
                )
            )
    return rows


def verifier_notes(study: Study) -> list[str]:
    """Return who judged what the rules reject, in whose words, and whether it counts."""
    verifier = study.evaluation.verifier
    if verifier is None:
        return []
    counts = study.evaluation.verdict == "verifier"
    counted = "count where" if counts else "are not counted here, also where"
    return [
        f"Answers that the rules reject {counted} {verifier.hub} accepts them; {_wording(verifier)}. "
        f"Of a prompt longer than {verifier.max_prompt_tokens} tokens it read the end of the response."
    ]


def _wording(verifier: Verifier) -> str:
    if verifier.template == "own":
        return "it was asked in this suite's own words, not in those that its authors publish"
    template = verifier.template
    at = f"{template.github} at {template.revision[:8]}"
    return f"it was asked with {template.name} of {at}"
