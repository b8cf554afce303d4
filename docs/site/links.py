"""Links from pages of `docs/` to other files of the repository."""

import re
from pathlib import Path
from posixpath import dirname, join, normpath

from stapo.suite.repository import ROOT

FENCE = re.compile(r"(^ *```.*?^ *``` *$)", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
REPOSITORY = re.compile(r"^repository(?:-code)?: *[\"']?(https://[^\s\"']+)", flags=re.MULTILINE)


def repository_address() -> str | None:
    """Return the address of the repository in `CITATION.cff`, None while it has none."""
    found = REPOSITORY.search((ROOT / "CITATION.cff").read_text())
    return found.group(1).rstrip("/") if found else None


def with_links(text: str, page: str, address: str | None, recipes: set[str]) -> str:
    """Return a page whose links to files outside the site lead to the repository.

    Args:
        text: the page in Markdown; links in fenced code stay.
        page: its path below `docs/`.
        address: the repository's; without one, links become the path of the file as code.
        recipes: files below `docs/` that the site shows as pages of their own.

    Raises:
        FileNotFoundError: a link leads to no file.
    """

    def replaced(match: re.Match[str]) -> str:
        words, target = match.groups()
        path, _, fragment = target.partition("#")
        if not path or ":" in target:
            return match[0]
        inside = normpath(join(dirname(page), path))
        if inside in recipes:
            return f"[{words}]({path}.md)"
        if not inside.startswith(".."):
            return match[0]
        file = normpath(join("docs", inside))
        if not (ROOT / file).exists():
            raise FileNotFoundError(f"docs/{page}: no file {file}")
        if address:
            kind = "tree" if Path(ROOT / file).is_dir() else "blob"
            return f"[{words}]({address}/{kind}/main/{file}{'#' * bool(fragment)}{fragment})"
        bare = words.strip("`")
        return f"`{file}`" if bare in file else f"{words} (`{file}`)"

    parts = FENCE.split(text)
    return "".join(part if FENCE.fullmatch(part) else LINK.sub(replaced, part) for part in parts)
