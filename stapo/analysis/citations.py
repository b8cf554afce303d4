"""The references of a study as BibTeX: the suite, the paper, and what the study uses."""

from collections.abc import Iterator
from pathlib import Path

from stapo import paths
from stapo.files import replace_file
from stapo.methods import METHODS
from stapo.reference import bibliography, citations
from stapo.study import Study


def write_references(study: Study, root: Path = Path()) -> Path:
    """Write the references of a study."""
    path = root / paths.REFERENCES.format(study=study.name)
    with replace_file(path) as stream:
        stream.write(references(study))
    return path


def references(study: Study) -> str:
    """Return BibTeX entries of what a study uses; a comment names what has no known reference."""
    cited = [*_cited(study)]
    keys = dict.fromkeys(key for _, found in cited for key in found)
    lines = [f"% What to cite with results of the study {study.name}; see docs/authors.md."]
    lines += [f"% No reference known: {what}." for what, found in cited if not found]
    return "\n\n".join(["\n".join(lines), *(bibliography().get(key, key) for key in keys)]) + "\n"


def _cited(study: Study) -> Iterator[tuple[str, list[str]]]:
    """Yield what a study uses with its references, as keys or entries; what is its own has none."""
    known, uses = citations(), study.cited()
    own = {name: [one.bibtex] for name, one in METHODS.items() if one.bibtex}
    yield "the suite", known["always"]
    for kind in ("methods", "benchmarks"):
        for name in uses[kind]:
            yield f"{name} ({kind})", known[kind].get(name) or own.get(name, [])
    for hub in uses["hub"]:
        yield hub, next((keys for start, keys in known["hub"].items() if hub.startswith(start)), [])
    if uses["vllm"]:
        yield "vLLM", known["vllm"]
