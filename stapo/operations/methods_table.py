"""Table of the resolved methods of a study, one line each."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stapo.study import Study

HEADINGS = (
    "method", "selection", "tau_p", "q", "scope", "clip", "dual clip", "KL", "aggregation", "statistics",
)  # fmt: skip
WIDTH = 160
"""Width in characters; a narrow terminal wraps lines, since truncated columns would be unreadable."""


def method_rows(study: Study) -> list[tuple[str, ...]]:
    """Return one row for each method of a study, in the order of `HEADINGS`; "-" if not applicable."""
    rows: list[tuple[str, ...]] = []
    for name in study.run.methods:
        method, training = study.method(name), study.training_of(name)
        args = method.selection_args
        rows.append(
            (
                name,
                method.selection,
                _shown(args.get("tau_p")),
                _shown(args.get("quantile", args.get("fraction"))),
                _shown(args.get("scope", "mini-batch" if "fraction" in args else None)),
                f"{method.clip_low:g} / {method.clip_high:g}",
                _shown(method.dual_clip),
                _shown(method.kl_coefficient or None),
                method.aggregation,
                training.statistics if method.reads != "none" else "-",
            )
        )
    return rows


def _shown(value: float | str | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:g}"


def print_methods(study: Study, console: Console) -> None:
    """Print the methods as one table, then the source of each and its changed settings."""
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in HEADINGS:
        shown.add_column(heading, no_wrap=True)
    for row in method_rows(study):
        shown.add_row(*map(Text, row))
    Console(file=console.file, width=max(WIDTH, console.width)).print(shown)
    for name in study.run.methods:
        method = study.method(name)
        console.print(Text(f"{name}: {method.title}: {method.source}"), soft_wrap=True)
