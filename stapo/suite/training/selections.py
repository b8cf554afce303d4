"""Token selections of a study's own, as the update takes them."""

from dataclasses import replace
from functools import wraps
from typing import Any

from stapo.core.methods import Method
from stapo.suite.study.functions import load, named, own_code


def with_selection(method: Method) -> Method:
    """Return a method that has the function of its selection, if this is one of the study's own.

    Raises:
        StudyError: the function is missing, or its file has changed since the study was read.
    """
    reference = method.selection
    if not isinstance(reference, str) or not method.is_own:
        return method
    function = load(reference, method.selection_sha256)

    @wraps(function)
    def selection(*tables: Any, **arguments: Any) -> Any:
        with own_code(reference):
            return function(*tables, **arguments)

    selection.__qualname__ = named(reference)  # In messages.
    return replace(method, selection=selection)
