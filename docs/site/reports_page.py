"""The page of reports: those that lie in this checkout, and the cost of the paper's smallest study."""

from pathlib import Path

from stapo.suite.operations.plan import plan_document
from stapo.suite.operations.status import span
from stapo.suite.repository import ROOT
from stapo.suite.study.reading import read_study, shipped

PAGE = "reports.md"
REPORTS = {
    "smollm2-words": "a real model of 135 million parameters, trained on a CPU",
    "marked": "the toy world in which every token is known to be right or wrong",
    "smoke": "the smallest study",
}
"""Study -> what its report shows, in the order of the page."""
PLANNED = "paper-1.7b"
GPU, GPUS = "h100", 8


def reports() -> dict[str, Path]:
    """Return path on the site -> report; a study that has not run here has none."""
    paths = {f"reports/{name}.html": ROOT / "results" / name / "report.html" for name in REPORTS}
    return {page: path for page, path in paths.items() if path.is_file()}


def reports_page() -> str:
    """Return the page in Markdown."""
    shown = reports()
    lines = [
        f"- [{name}](reports/{name}.html): {shows}"
        if f"reports/{name}.html" in shown
        else f"- `{name}`: {shows} (not run in this checkout)"
        for name, shows in REPORTS.items()
    ]
    return "\n".join(
        ["# Reports\n", "Each study ends with a page like these:\n", *lines, "", *_plan()]
    )


def _plan() -> list[str]:
    study = read_study(shipped(PLANNED))
    rows = plan_document(study, GPU, GPUS)["rows"]
    hours = sum(row["gpu_hours"] for row in rows)
    return [
        f"## {PLANNED}, planned\n",
        f"The paper's smallest model has not been trained. `stapo plan` estimates {hours:,.0f} hours of "
        f"an {GPU.upper()}, with {GPUS} for each training:\n",
        "| stage | model | jobs | each | GPU-hours | GB of disk |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row['stage']} | {row['model']} | {row['jobs']} | "
            f"{span(3600 * row['hours'] / row['jobs'])} | {row['gpu_hours']:,.0f} | "
            f"{row['disk'] / 1e9:,.0f} |"
            for row in rows
        ),
        "",
    ]
