"""A page in headless Chromium with the network off, which notes what it asks for and what goes wrong in it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: Where the screenshots go; `make screenshots` puts those of the docs in their place.
SHOTS = ROOT / "out" / "report"


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser that ``tools/browser.sh`` finds."""
    from playwright.sync_api import sync_playwright

    path = subprocess.run([ROOT / "tools" / "browser.sh"], check=True, capture_output=True, text=True).stdout.strip()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


class Opened:
    """A file opened from disk: its page, the addresses it asked for, the errors and warnings on its console."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light") -> None:
        viewport = {"width": 1440, "height": 900}
        self.context = browser.new_context(offline=True, viewport=viewport, color_scheme=scheme)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())
        self.drawn(1)

    def drawn(self, times: int) -> None:
        """Wait until the graph has been drawn so many times."""
        self.page.wait_for_selector(f'body[data-drawn="{times}"]', timeout=120_000)

    def click_box(self, box: str) -> None:
        """Click a box of the graph where it is on the screen."""
        graph = self.page.locator("#graph").bounding_box()
        at = self.page.evaluate("id => cy.getElementById(id).renderedPosition()", box)
        self.page.mouse.click(graph["x"] + at["x"], graph["y"] + at["y"])

    def boxes(self, selector: str = "node[text][!right]") -> list[str]:
        return self.page.evaluate("selector => cy.nodes(selector).map(node => node.id())", selector)

    def details(self) -> str:
        return self.page.locator("#details").inner_text()

    def shoot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.wait_for_timeout(300)
        self.page.screenshot(path=SHOTS / f"{name}.png")
