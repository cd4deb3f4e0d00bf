"""The site of the docs, opened as files: its search works, and it asks nobody for anything."""

from __future__ import annotations

import pytest

from doc_site import build_site

from .conftest import PATIENCE


@pytest.mark.slow  # builds the whole site
def test_the_search_finds_a_rule_without_a_server(browser, tmp_path):
    site = build_site(tmp_path / "site")
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.goto((site / "index.html").as_uri())
    while not page.evaluate("document.activeElement.matches('input[name=query]')"):  # until its script listens
        page.keyboard.press("f")
    page.keyboard.type("fp16-overflow")
    page.wait_for_selector("a.md-search-result__link[href*='rules/fp16-overflow.html']")
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()
