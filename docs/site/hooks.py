"""Events of MkDocs: the generated reference, the recipes as pages, and links to the repository."""

from pathlib import Path
from typing import Any

from links import repository_address, with_links
from mkdocs.structure.files import File, Files
from reference import contents, pages

DOCS = Path(__file__).parents[1]
RECIPES = {str(path.relative_to(DOCS)) for path in (DOCS / "recipes").glob("*.py")}


def on_config(config: Any) -> Any:
    """Show the address of the repository in the header, once there is one."""
    config.repo_url = repository_address()
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in the repository."""
    generated = {path: page.text() for path, page in pages().items()}
    generated |= {f"{path}.md": _recipe(path) for path in RECIPES}
    for path, text in generated.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Change the links of a page, and list the generated pages in the reference."""
    path = page.file.src_uri
    if path == "reference/README.md":
        markdown += f"\n{contents()}\n"
    return with_links(markdown, path, config.repo_url, RECIPES)


def _recipe(path: str) -> str:
    text = (DOCS / path).read_text()
    return f"# {Path(path).name}\n\n`docs/{path}`, to copy:\n\n```python\n{text.rstrip()}\n```\n"
