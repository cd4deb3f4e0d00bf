"""The site builds without a warning, every link leads somewhere, and nothing on it comes from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import stayfinite
from doc_blocks import ROOT
from doc_site import build_site
from stayfinite.cli import COMMANDS
from stayfinite.rules.registry import all_rules

ADDRESSES = {"a": "href", "link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page links to, what it loads, and the places on it that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if address := given.get(ADDRESSES.get(tag, ""), ""):
            (self.links if tag == "a" else self.loads).append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def parsed(site):
    return {path: Page(path) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_every_link_and_every_anchor_leads_somewhere(site, parsed):
    lost = []
    for path, page in parsed.items():
        # The page for a missing page is met at any depth; its links start at the root.
        for address in page.links + page.loads if path.name != "404.html" else []:
            if re.match(r"[a-z]+:", address):
                continue
            place, _, anchor = unquote(address).partition("#")
            target = (path.parent / place.partition("?")[0]).resolve() if place else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                lost.append(f"{path.relative_to(site)}: {address}")
            elif target in parsed and anchor not in parsed[target].anchors and not anchor.startswith("__"):
                lost.append(f"{path.relative_to(site)}: {address}, no such place")
    assert lost == []


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site, parsed):
    foreign = [(path.name, each) for path, page in parsed.items() for each in page.loads if re.match(r"\w+:|//", each)]
    foreign += [
        (path.name, found)
        for path in site.rglob("*.css")
        for found in re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//[^)\"']+", path.read_text(encoding="utf-8"))
    ]
    assert foreign == []


@pytest.mark.slow
def test_the_search_needs_no_server(site):
    assert (site / "search" / "search_index.js").is_file()
    assert "iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_there_is_a_page_for_each_rule_recipe_and_integration_and_all_are_in_the_navigation(site, parsed):
    pages = [f"rules/{rule.slug}" for rule in all_rules()]
    pages += [
        f"{folder}/{path.stem}"
        for folder in ("recipes", "integrations")
        for path in (ROOT / "docs" / folder).glob("*.md")
    ]
    linked = {(path.parent / link.partition("#")[0]).resolve() for path, page in parsed.items() for link in page.links}
    for page in pages:
        assert site / f"{page}.html" in linked, page


@pytest.mark.slow
def test_the_reference_explains_every_public_name(site, parsed):
    anchors = set().union(*(page.anchors for path, page in parsed.items() if path.parent.name == "reference"))
    kinds = {getattr(stayfinite, name) for name in stayfinite.__all__ if name != "__version__"}
    missing = {kind.__name__ for kind in kinds if not any(each.endswith(kind.__name__) for each in anchors)}
    assert not missing


@pytest.mark.slow
def test_the_reference_names_every_command(site):
    text = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"stayfinite {name}<" not in text] == []


@pytest.mark.slow
def test_lists_are_lists(site):
    run_on = re.compile(r"^(?:- |1\. )", re.MULTILINE)
    outside_code = {
        path: re.sub(r"<pre.*?</pre>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for path in site.rglob("*.html")
    }
    assert [path.name for path, text in outside_code.items() if run_on.search(text)] == []


def test_every_bold_number_stands_in_the_table_that_it_is_taken_from():
    rows = [line for line in (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8").splitlines() if "**" in line]
    assert len(rows) > 15
    for row in rows:
        (number,) = re.findall(r"\*\*(.+?)\*\*", row)
        (table,) = re.findall(r"\(\.\./(benchmarks/results/\w+\.md)\)", row)
        assert number in (ROOT / table).read_text(encoding="utf-8"), row
        script, flags = re.findall(r"`(\w+\.py)(.*?)` \|$", row)[0]
        source = (ROOT / "benchmarks" / script).read_text(encoding="utf-8")
        assert [flag for flag in re.findall(r"--[\w-]+", flags) if flag not in source] == []
