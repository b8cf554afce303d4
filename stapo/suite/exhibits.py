"""What a study shows besides its main tables: figures, and tables of evidence.

Each is one file of `figures` or `tables` in `stapo/suite/analysis`, which is found by its folder: it
declares an `EXHIBIT` of plain values, and a function `make` that returns the chart or the table.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from stapo.suite.study import Study

PAPER_SILENCED = 0.01
"""Silenced tokens in percent; the paper reports less in nearly all steps."""
COLLAPSE, EXPLOSION = 0.1, 3.0
"""Entropy, relative to its reference, below which it has collapsed, and above which it has exploded."""

Need = Literal[
    "vllm", "checkpoints", "interventions", "quadrant-interventions", "method-interventions",
    "gradient-interventions", "marks", "ablation",
]  # fmt: skip
"""What not every study has; see `NEEDS`."""
NEEDS: dict[Need, str] = {
    "vllm": "rollouts by vLLM or in bfloat16 (training.rollouts)",
    "checkpoints": "intermediate checkpoints (training.evaluate_every or evaluation.curve)",
    "interventions": "interventions (interventions.checkpoints)",
    "marks": "a world with known truth (data.builder: marked-chains)",
    "quadrant-interventions": "interventions with random tokens (interventions.controls)",
    "gradient-interventions": "gradients of single tokens (interventions.gradient_tokens)",
    "method-interventions": "interventions by whole methods (interventions.methods)",
    "ablation": "methods that differ only in one argument of their token selection (methods, run.methods)",
}
"""What a study must have, in words, with the settings that add it."""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A figure or table that is computed from files of a study."""

    title: str
    """What it shows, as a heading."""
    order: int = 1000
    """Its place in the report; the lowest comes first."""
    needs: Need | None = None
    """What a study must have; None if every study has it."""


@cache
def declared(folder: Literal["tables", "figures"]) -> dict[str, Exhibit]:
    """Return name -> declaration of the files in a folder of `analysis`, in the order of the report."""
    files = sorted((Path(__file__).parent / "analysis" / folder).glob("[!_]*.py"))
    exhibits = {file.stem: _declaration(file) for file in files}
    return dict(sorted(exhibits.items(), key=lambda item: item[1].order))


def _declaration(file: Path) -> Exhibit:
    """Return the `EXHIBIT` of a file of this package without its imports: Snakemake needs no altair."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXHIBIT":
            assert isinstance(node.value, ast.Call)
            values = {
                str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.value.keywords
            }
            return Exhibit(**values)
    raise ValueError(f"{file}: no EXHIBIT")


def figure_names(study: "Study") -> list[str]:
    """Return the figures of a study for which it has data, in the order of the report."""
    return _shown(declared("figures"), study)


def table_names(study: "Study") -> list[str]:
    """Return the tables of evidence of a study for which it has data, in the order of the report."""
    return _shown(declared("tables"), study)


def _shown(exhibits: dict[str, Exhibit], study: "Study") -> list[str]:
    from stapo.suite.study.study import families

    has: dict[Need | None, bool] = {
        None: True,
        "vllm": study.training.rollouts != "transformers",
        "checkpoints": bool(study.kept_steps()),
        "ablation": bool(families(study)),
        "interventions": bool(study.intervened()),
        "marks": getattr(study.data, "builder", "") == "marked-chains",
        "gradient-interventions": bool(study.intervened() and study.interventions.gradient_tokens),
        "method-interventions": bool(study.intervened() and study.interventions.methods),
        "quadrant-interventions": bool(study.intervened())
        and "random" in study.interventions.controls,
    }
    # A study of base models alone has main tables.
    return [name for name, exhibit in exhibits.items() if has[exhibit.needs] and study.run.methods]


FIGURES = declared("figures")
"""Name of a figure -> its declaration, in the order of the report."""
TABLES = declared("tables")
"""Name of a table of evidence -> its declaration, in the order of the report."""
