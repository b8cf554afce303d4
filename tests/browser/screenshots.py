"""Take the screenshots of the documentation.

python tests/browser/screenshots.py results/smoke/report.html docs/images
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SHOTS = {"report-headline": "#results", "report-figures": "#figures"}
"""Name of the picture -> heading at its top."""


def main(page: Path, folder: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        opened = browser.new_page(viewport={"width": 1280, "height": 800})
        opened.goto(page.resolve().as_uri())
        for name, heading in SHOTS.items():
            opened.locator(heading).evaluate("(one) => one.scrollIntoView()")
            opened.wait_for_timeout(2000)  # Figures are drawn when they come into view.
            opened.screenshot(path=folder / f"{name}.png")
        browser.close()


main(*map(Path, sys.argv[1:]))
