"""The pages of the rules: one text for the terminal, the docs and programs."""

import json
from pathlib import Path

import pytest

from command_cost import command_cost
from stayfinite.cli import main
from stayfinite.report.pages import wrapped
from stayfinite.rules.registry import all_rules

ROOT = Path(__file__).parent.parent.parent


def test_explain_prints_the_page_of_a_code_or_a_slug(capsys):
    assert main(["explain", "SF103"]) == 0
    by_code = capsys.readouterr().out
    assert main(["explain", "double-fp16"]) == 0
    assert capsys.readouterr().out == by_code
    assert "Attempting to unscale FP16 gradients" in by_code


def test_explain_as_json_has_the_sections_apart(capsys):
    assert main(["explain", "SF103", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["slug"] == "double-fp16"
    assert "How to fix it" in page["sections"]


def test_an_unknown_rule_ends_with_2(capsys):
    assert main(["explain", "SF999"]) == 2
    assert "no rule" in capsys.readouterr().err


def test_rules_lists_every_rule(capsys):
    assert main(["rules", "--json"]) == 0
    assert [each["code"] for each in json.loads(capsys.readouterr().out)] == [rule.code for rule in all_rules()]


def test_the_pages_in_the_docs_are_those_of_the_rules(tmp_path, capsys):
    assert main(["rules", "--docs", str(tmp_path)]) == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "rules").iterdir()}
    assert written == kept, "run `make docs`"


def test_explaining_loads_neither_torch_nor_rich_and_is_there_at_once():
    loaded, starts = command_cost(["explain", "SF101"], modules=["torch", "rich", "tyro"], times=5)
    assert loaded == []
    assert starts < 30


@pytest.mark.parametrize("width", [60, 80])
def test_a_page_and_the_list_are_broken_between_words_at_any_width(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["explain", "SF102"]) == 0
    page = capsys.readouterr().out
    assert main(["rules"]) == 0
    listed = capsys.readouterr().out
    assert all(len(line) <= width or len(line.split()) == 1 for line in [*page.splitlines()[1:], *listed.splitlines()])
    monkeypatch.delenv("COLUMNS")
    assert main(["explain", "SF102"]) == 0
    assert capsys.readouterr().out.split() == page.split()


def test_code_and_lists_of_a_page_keep_their_lines():
    text = "A paragraph of\ntwo lines.\n\n    code = 1  # stays as long as it is\n\n- one item that\n  goes on\n- two"
    assert wrapped(text, 20) == [
        "A paragraph of two",
        "lines.",
        "",
        "    code = 1  # stays as long as it is",
        "",
        "- one item that goes",
        "  on",
        "- two",
    ]
