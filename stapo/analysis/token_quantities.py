"""What claims of the paper about tokens are decided by, from token records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from stapo.analysis.against_paper import is_papers
from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.bounds import ROUNDING, distance_outside
from stapo.analysis.evidence.estimates import Estimate, Mask, relative, share
from stapo.analysis.evidence.quadrants import masks
from stapo.analysis.evidence.recorded import Recorded, recorded
from stapo.analysis.quantities import Measured, UnmeasuredError, need_methods

DIGITS_AND_SIGNS = frozenset("0123456789$x")


def _of(artefacts: Artefacts, method: str, size: str | None = None) -> Iterator[Recorded]:
    """Yield the recorded tokens of a method, at one of the paper's sizes if that is given."""
    study = artefacts.study
    need_methods(study, [method])
    if size is not None and size not in study.run.sizes:
        raise UnmeasuredError(f"the study has no {size}")
    if size is not None and not is_papers(study, size):
        raise UnmeasuredError(f"the model of {size} is not the paper's")
    for one in recorded(artefacts):
        if one.method == method and size in (None, one.size):
            yield one


def spurious_gradient(artefacts: Artefacts, method: str, size: str | None = None) -> list[Measured]:
    """Return by how many percent the mean gradient norm of spurious tokens exceeds that of high/high ones."""
    found = []
    for one in _of(artefacts, method, size):
        spurious, *_, high = masks(one)
        known = one.measured
        norm = np.where(known, one.norm, 0.0)
        estimate = relative(one.sample, norm, spurious & known, high & known)
        what = (
            f"mean gradient norm of spurious tokens of {one.title}, above that of high probability and high "
            "entropy [%]"
        )
        found.append(Measured(one.size, what, estimate, "+.1f"))
    return found


def within_bounds(artefacts: Artefacts, method: str) -> list[Measured]:
    """Return the share of the tokens with a gradient whose exact norm is within its bounds, in percent."""
    return _shares(
        artefacts,
        method,
        "tokens within the bounds",
        lambda one: distance_outside(one) <= ROUNDING,
        lambda one: ~np.isnan(distance_outside(one)),
    )


def silenced_digits(artefacts: Artefacts, method: str) -> list[Measured]:
    """Return the share of the silenced tokens that are digits, "$" or "x", in percent."""
    return _shares(
        artefacts,
        method,
        'silenced tokens that are digits, "$" or "x"',
        lambda one: _texts(one, lambda text: bool(text) and {*text} <= DIGITS_AND_SIGNS),
        lambda one: one.silenced,
    )


def retained_words(artefacts: Artefacts, method: str) -> list[Measured]:
    """Return the share of the retained rare tokens that are words: two letters or more, in percent."""
    return _shares(
        artefacts,
        method,
        "retained rare tokens that are words",
        lambda one: _texts(one, lambda text: len(text) > 1 and text.isalpha()),
        lambda one: one.retained,
    )


def _texts(one: Recorded, is_it: Callable[[str], bool]) -> Mask:
    return np.array([is_it(text.strip()) for text in one.frame["token"]], dtype=bool)


def _shares(
    artefacts: Artefacts,
    method: str,
    what: str,
    part: Callable[[Recorded], Mask],
    whole: Callable[[Recorded], Mask],
) -> list[Measured]:
    found: list[Measured] = []
    for one in _of(artefacts, method):
        class_ = whole(one)
        if not class_.any():
            raise UnmeasuredError(f"{one.size}, {one.title}: no such token was recorded")
        estimate = share(one.sample, part(one) & class_, class_)
        found.append(Measured(one.size, f"{what}, {one.title} [%]", _percent(estimate), ".1f"))
    return found


def _percent(found: Estimate) -> Estimate:
    return replace(found, value=100 * found.value, low=100 * found.low, high=100 * found.high)


TOKEN_QUANTITIES: dict[str, Callable[..., Sequence[Measured]]] = {
    function.__name__: function
    for function in (spurious_gradient, within_bounds, silenced_digits, retained_words)
}
"""Name in `claims.yaml` -> function of artefacts, method and the arguments of the claim."""
