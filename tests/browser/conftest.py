"""A real browser: Debian's Chromium, or any other that is found, driven by Playwright."""

from __future__ import annotations

import os
import shutil

import pytest

PATIENCE = 90_000
"""Milliseconds for what takes a moment, also on a machine that stands still for a while."""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def found_browser() -> str | None:
    """The path of a Chromium; `STAYFINITE_CHROMIUM` names one that is not on the path."""
    return os.environ.get("STAYFINITE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    path = found_browser()
    if path is None:
        pytest.skip("needs a Chromium: apt-get install chromium, or STAYFINITE_CHROMIUM=/path/to/chrome")
    with playwright.sync_playwright() as driver:
        # In a container there is often no right to make the sandbox; the pages are our own.
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=PATIENCE)
        yield opened
        opened.close()


class Tab:
    """An open page, with what its console said."""

    def __init__(self, page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        if not url.startswith(("file:", "data:")):
            self.complaints.append(f"asked for {url}")

    def open(self, path) -> Tab:
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=PATIENCE)
        return self

    def see(self, script: str):
        """What a script finds in the page."""
        return self.page.evaluate(script)


@pytest.fixture
def tab(browser):
    opened = []

    def make(**settings):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | settings)
        context.set_default_timeout(PATIENCE)
        opened.append(context)
        return Tab(context.new_page())

    yield make
    for context in opened:
        context.close()
