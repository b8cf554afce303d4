"""Links from pages of `docs/` to other files of the repository."""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from stapo.suite.repository import ROOT

FENCE = re.compile(r"(^ *```.*?^ *``` *$)", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
"""Of a page, or with an exclamation mark of an image."""
REPOSITORY = re.compile(r"^repository(?:-code)?: *[\"']?(https://[^\s\"']+)", flags=re.MULTILINE)


def repository_address() -> str | None:
    """Return the address of the repository in `CITATION.cff`, None while it has none."""
    found = REPOSITORY.search((ROOT / "CITATION.cff").read_text())
    return found.group(1).rstrip("/") if found else None


def with_links(text: str, page: str, address: str | None, shown: dict[str, str]) -> str:
    """Return a page whose links to files outside the site lead to the repository.

    Args:
        text: the page in Markdown; links in fenced code stay.
        page: its path on the site.
        address: the repository's; without one, links become the path of the file as code.
        shown: file outside `docs/` -> its page on the site.

    Raises:
        FileNotFoundError: a link leads to no file.
    """
    source = next((file for file, where in shown.items() if where == page), f"docs/{page}")

    def replaced(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        path, _, fragment = target.partition("#")
        if not path or ":" in target:
            return match[0]
        file = normpath(join(dirname(source), path))
        if file.startswith("docs/") and source == f"docs/{page}":
            return match[0]
        on_site = shown.get(file) or (file[5:] if file.startswith("docs/") else None)
        if on_site:
            place = relpath(on_site, dirname(page) or ".")
            return f"{mark}[{words}]({place}{'#' * bool(fragment)}{fragment})"
        if not (ROOT / file).exists():
            raise FileNotFoundError(f"{source}: no file {file}")
        if address:
            kind = "tree" if Path(ROOT / file).is_dir() else "blob"
            return f"[{words}]({address}/{kind}/main/{file}{'#' * bool(fragment)}{fragment})"
        bare = words.strip("`")
        return f"`{file}`" if bare in file else f"{words} (`{file}`)"

    parts = FENCE.split(text)
    return "".join(part if FENCE.fullmatch(part) else LINK.sub(replaced, part) for part in parts)
