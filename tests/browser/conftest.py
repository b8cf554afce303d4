"""A report with everything in it, opened in a headless browser without network."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from finished_study import finish

from stapo import paths
from stapo.analysis import charts, report
from stapo.analysis.evidence.tokens import _shown as shown_token
from stapo.analysis.figures import token_frequencies
from stapo.analysis.table import Column, Table
from stapo.repository import CATALOGUE, ROOT
from stapo.study import Study, merge, parse_study

SMOKE = ROOT / "workflows" / "studies" / "smoke.yaml"

EVIL = (
    "<img src=x onerror='document.title=1'><script>document.title=2</script> <b>bold</b> "
    "<a href='https://example.org'>link</a> </script> <!-- \x1b[31m \u202e &lt; %{x} {{ 7 * 7 }}"
)
TOKENS = 45
MILLISECONDS = 180_000


def tokens(study: Study) -> list[dict[str, Any]]:
    """Return token records in the form of those of a training."""
    titles = [study.method(name).title for name in study.run.methods]
    return [
        {
            "step": 1 + index // 3, "method": titles[index % len(titles)], "size": study.run.sizes[index % 2],
            "seed": study.run.seeds[index % 2],
            "kind": ("silenced", "retained", "other")[index % 3], "kept": index % 3 != 0,
            "token": EVIL if index == 7 else (" the", "\n", "7")[index % 3],
            "before": f"{EVIL}\n2-1=1; so" if index == 7 else "2-1=1; so", "after": " 1-6=5; now",
            "probability": 0.001 * (1 + index), "entropy": 0.01 * index, "advantage": 1.5, "ratio": 1.0,
            "reward": 1.0 if index % 2 else -1.0, "gradient_norm": 1.4 - 0.01 * index,
            "quadrant": "low p, low H" if index % 2 else "low p, high H",
            "category": "digits" if index % 3 else "unsorted",
            "top_tokens": ["5", EVIL, "\n", "7", "8"], "top_probabilities": [0.6, 0.2, 0.1, 0.05, 0.01],
            "prompt": index, "response": 0, "position": index, "length": TOKENS,
        }
        for index in range(TOKENS)
    ]  # fmt: skip


def escaped(study: Study) -> list[dict[str, Any]]:
    return [
        {name: shown_token(name, value) for name, value in row.items()} for row in tokens(study)
    ]


def figure(artefacts: Any) -> Any:
    """Return a chart with every kind of mark, and text that is not ours."""
    group = charts.colours(["silenced", EVIL])
    x, y = charts.x_axis("p", log=True), charts.y_axis(EVIL)
    bars = [
        {"x": 5 - i, "y": name, "low": 4 - i, "high": 6 - i, "group": "silenced", "text": name}
        for i, name in enumerate(["7", EVIL, " the"])
    ]
    points = [
        {"x": 0.1**i, "y": i, "low": 0, "high": 2, "group": EVIL, "text": EVIL} for i in (1, 3)
    ]
    layers = [*charts.points(points, x, y, group, size=60), *charts.lines(points, x, y, group)]
    rule = charts.rule(0.002, EVIL, vertical=True)
    panels = [
        charts.panel(charts.bars(bars, EVIL, group), "tiny"),
        charts.panel([*layers, charts.labels(points, x, y, group), *rule], EVIL),
    ]
    return charts.grid(panels, f"Frequencies. {EVIL}")


class Verdict(NamedTuple):
    """A row of the table of verdicts."""

    claim: str
    verdict: str
    measured: bool


def verdicts(artefacts: Any) -> Table:
    columns: list[Column[Any]] = [
        Column("Claim", lambda row: row[0], text=True),
        Column("Verdict", lambda row: row[1], text=True),
    ]
    rows = [Verdict("STAPO is better.", "cannot be decided", False), Verdict(EVIL, "holds", True)]
    return Table(columns=columns, rows=rows, caption="What the paper claims.")


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two sizes and two seeds."""
    root = tmp_path_factory.mktemp("report")
    raw = merge(*(yaml.safe_load(path.read_text()) for path in (CATALOGUE, SMOKE)))
    raw["name"] = "demo"
    raw["run"] |= {
        "sizes": ["tiny", "1.7B"], "methods": ["grpo", "justrl", "stapo"], "seeds": [0, 1],
        "decodings": ["t1.0-p1.0"], "benchmarks": ["chain-2", "linear-equation"],
    }  # fmt: skip
    raw["training"]["steps"] = 10
    raw["methods"] = {"grpo": {"title": "<b>G</b>RPO &amp;"}}
    study = parse_study(raw)
    finish(study, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_frequencies, "make", figure)
        patch.setattr(report, "evidence_table", lambda artefacts, name: verdicts(artefacts))
        patch.setattr(report, "token_rows", lambda artefacts: escaped(study))
        figures = ["entropy", "reward", "silenced_fraction", "token_frequencies"]
        patch.setattr(paths, "figure_names", lambda study: figures)
        patch.setattr(paths, "table_names", lambda study: ["verdicts"])
        return report.write_report(study, root)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    api = pytest.importorskip("playwright.sync_api")
    # The page has 5 MB, and the machine may be busy.
    api.expect.set_options(timeout=MILLISECONDS)
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


class Opened:
    """A page, and everything in it that should not have happened."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.messages: list[str] = []


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that opens the report; at the end, nothing may have been fetched or complained of."""
    made: list[tuple[Any, Opened]] = []

    def open_(width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, offline=True, **options)
        context.set_default_timeout(MILLISECONDS)
        one = Opened(context.new_page())
        made.append((context, one))

        def route(request: Any) -> None:
            if request.request.url.startswith("file:"):
                request.continue_()
            else:
                one.requests.append(request.request.url)
                request.abort()

        context.route("**/*", route)
        one.page.on("console", lambda said: one.messages.append(f"{said.type}: {said.text}"))
        one.page.on("pageerror", lambda error: one.messages.append(str(error)))
        one.page.on("dialog", lambda dialog: one.messages.append("a dialog"))
        one.page.goto(page.as_uri())
        return one.page

    yield open_
    for context, one in made:
        context.close()
        assert one.requests == []
        assert one.messages == []
