"""Check for methods of a study with the misleading name or title of another method."""

from collections.abc import Iterator

from stapo.methods import METHODS
from stapo.study.study import Study


def title_faults(study: Study) -> Iterator[str]:
    """Yield one line for each method with the name or title of another."""
    titles: dict[str, str] = {}
    for name in study.run.methods:
        base, shown = study.origin_of(name), study.method(name).title
        own = {_plain(base), _plain(METHODS[base].title)}
        if name in METHODS and base != name:
            yield f"methods.{name}: is based on {base} but has the name of another method"
        for other, method in METHODS.items():
            text = _plain(method.title)
            # "JustRL-FullMask" is full-mask's own title, although it contains JustRL.
            whole = any(text in one and one in _plain(shown) for one in own)
            if other != base and text in _plain(shown) and not whole:
                yield f"methods.{name}: is based on {base} but has the title {shown!r} of {other}"
        if (first := titles.setdefault(_plain(shown), name)) != name:
            yield f"methods.{name}: has the same title as {first}"


def _plain(title: str) -> str:
    return "".join(filter(str.isalnum, title.casefold()))
