"""The page is one file: nothing from elsewhere, and nothing that a run has written gets out of its place."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest

from planted_runs import an_autopsy, an_incident, plant_run
from stayfinite.guard.telling.showing import shown_runs
from stayfinite.report.page.data import page_data
from stayfinite.report.page.html import SCRIPTS, as_script_data, page_csp, page_html, write_page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    run = plant_run(tmp_path_factory.mktemp("run"), incident=an_incident(), autopsy=an_autopsy())
    return page_html(page_data(shown_runs([run])))


def block(page: str, opening: str) -> str:
    return page.split(opening, 1)[1].split("</", 1)[0]


def test_it_asks_for_nothing_from_elsewhere(page):
    without_texts = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)
    assert not re.search(
        r"https?:|//[a-z]|@import|url\(", re.sub(r"^\s*//.*$|; //.*$", "", without_texts, flags=re.MULTILINE)
    )


def test_the_policy_names_the_hash_of_the_very_script_and_style(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1].replace("&#x27;", "'")
    for kind, content in (("script", block(page, "<script>")), ("style", block(page, "<style>"))):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "connect-src" not in policy
    assert "connect-src 'self'" in page_csp("events")


def test_no_text_can_leave_its_place():
    evil = "</script><!--<script>&amp;\u2028\u2029 \\u003c"
    written = as_script_data({"name": evil})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {"name": evil}


def test_what_looks_like_a_place_in_the_template_is_left_as_it_is():
    data = page_data([]) | {"title": "%%DATA%% %%SCRIPT%%"}
    page = page_html(data)
    assert "<title>%%DATA%% %%SCRIPT%% · stayfinite</title>" in page


def test_the_script_never_makes_markup_of_text(page):
    script = block(page, "<script>")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in script


def test_every_script_file_is_part_of_the_page():
    from importlib.resources import files

    held = {path.name.removesuffix(".js") for path in files("stayfinite.report.page").joinpath("script").iterdir()}
    assert held == set(SCRIPTS)


def test_a_live_page_knows_its_stream_and_another_one_does_not():
    data = page_data([])
    assert '<script type="application/json" id="stream">"events?token=a\\u0026b"</script>' in page_html(
        data, "events?token=a&b"
    )
    assert '<script type="application/json" id="stream">null</script>' in page_html(data)


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path):
    out = tmp_path / "report.html"
    out.write_text("old")
    out.with_name("taken").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_page(page_data([]), tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "taken"]
    assert out.read_text() == "old"
    write_page(page_data([]), out)
    assert out.read_text().startswith("<!doctype html>")
