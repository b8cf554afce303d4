"""Methods of a study under the names or titles of others, which a reader would mistake for them."""

from collections.abc import Iterator

from stapo.methods import METHODS
from stapo.study.study import Study


def title_faults(study: Study) -> Iterator[str]:
    """Yield methods that go by the name or title of another."""
    titles: dict[str, str] = {}
    for name in study.run.methods:
        base, shown = study.origin_of(name), study.method(name).title
        own = {_plain(base), _plain(METHODS[base].title)}
        if name in METHODS and base != name:
            yield f"methods.{name}: is made of {base} and goes by the name of another method"
        for other, method in METHODS.items():
            text = _plain(method.title)
            # "JustRL-FullMask" is full-mask's own title, though JustRL stands in it.
            whole = any(text in one and one in _plain(shown) for one in own)
            if other != base and text in _plain(shown) and not whole:
                yield f"methods.{name}: is made of {base} and titled {shown!r}, as {other} is"
        if (first := titles.setdefault(_plain(shown), name)) != name:
            yield f"methods.{name}: has the title of {first}"


def _plain(title: str) -> str:
    return "".join(filter(str.isalnum, title.casefold()))
