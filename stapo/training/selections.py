"""The function of a method's token selection: one of `stapo.objective`, or of a study's own."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from stapo.methods import Method
from stapo.objective import SELECTIONS
from stapo.study.code import SEED, found_path, load
from stapo.training.own_functions import own_function

Selection = Callable[..., Tensor]


def selection_of(method: Method) -> tuple[Selection, bool]:
    """Return the token selection of a method, and whether it takes the seed of the step.

    Raises:
        StudyError: a function of the study's own is missing or has changed.
    """
    if not method.is_own:
        return SELECTIONS[method.selection], method.spec.draws
    return _own(method.selection, method.selection_sha256)


@cache
def _own(reference: str, sha256: str) -> tuple[Selection, bool]:
    function, place = load(reference, sha256), found_path(reference)

    def select(
        logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor, **arguments: Any
    ) -> Tensor:
        # Copies: a function that changes its arguments must not change the trainer's tables.
        tables = (table.clone() for table in (logps, entropies, advantages, mask))
        with own_function(reference, place):
            keep = function(*tables, **arguments)
        if not isinstance(keep, Tensor) or keep.dtype != torch.bool or keep.shape != mask.shape:
            found = (
                f"{keep.dtype} of shape {tuple(keep.shape)}"
                if isinstance(keep, Tensor)
                else type(keep).__name__
            )
            raise ValueError(
                f"{reference}: expected bool of shape {tuple(mask.shape)}, found {found}; fix the function"
            )
        if (keep & ~mask).any():
            raise ValueError(f"{reference}: keeps positions outside mask; return `mask & ...`")
        return keep

    return select, SEED in inspect.signature(function).parameters
