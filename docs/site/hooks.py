"""Events of MkDocs: the generated reference, the examples as pages, and links to the repository."""

from pathlib import Path
from typing import Any

from links import repository_address, with_links
from mkdocs.structure.files import File, Files
from reference import contents, pages
from reports_page import PAGE, reports, reports_page

from stapo.suite.repository import ROOT, STUDIES

EXAMPLES = ROOT / "examples"
SHOWN = {f"examples/{path.name}": f"examples/{path.name}.md" for path in EXAMPLES.glob("*.py")}
SHOWN["examples/README.md"] = "examples/README.md"
SHOWN |= {
    f"workflows/studies/{path.parent.name}/README.md": f"studies/{path.parent.name}.md"
    for path in STUDIES.glob("*/README.md")
}
"""File outside `docs/` -> page of the site."""


def on_config(config: Any) -> Any:
    """Show the address of the repository in the header, once there is one."""
    config.repo_url = repository_address()
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in the repository."""
    generated = {path: page.text() for path, page in pages().items()}
    generated |= {page: _example(path) for path, page in SHOWN.items()}
    generated[PAGE] = reports_page()
    for path, text in generated.items():
        files.append(File.generated(config, path, content=text))
    for path, report in reports().items():
        files.append(File.generated(config, path, abs_src_path=str(report)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Change the links of a page, and list the generated pages in the reference."""
    path = page.file.src_uri
    if path == "reference/README.md":
        markdown += f"\n{contents()}\n"
    return with_links(markdown, path, config.repo_url, SHOWN)


def _example(path: str) -> str:
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    return f"# {Path(path).name}\n\n`{path}`, to copy:\n\n```python\n{text.rstrip()}\n```\n"
