"""A rule's page as terminal text and as Markdown, both from its docstring."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.registry import family_of
from stayfinite.rules.rule import Rule

_HEADING = lazy_regex(r"^## (.+)$", re.MULTILINE)
_CODE = lazy_regex(r"`([^`]+)`")


def page_as_data(rule: Rule) -> dict[str, Any]:
    """A rule's page split into sections."""
    title, _, body = rule.page.strip().partition("\n")
    parts = _HEADING.split(body)
    sections = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {
        "code": rule.code, "slug": rule.slug, "severity": rule.severity, "family": family_of(rule),
        "title": title.strip(), "fix": rule.fix, "sections": sections,
    }  # fmt: skip


def page_as_text(page: Mapping[str, Any], *, colour: bool) -> str:
    """For a terminal."""
    bold, dim, cyan, plain = ("\033[1m", "\033[2m", "\033[36m", "\033[0m") if colour else ("", "", "", "")
    lines = [
        f"{bold}{page['code']} {page['slug']}{plain}  {dim}{page['family']}, {page['severity']}{plain}",
        page["title"],
    ]
    for name, text in page["sections"].items():
        shown = _CODE.sub(rf"{cyan}\1{plain}", text) if colour else text
        lines += ["", f"{bold}{name}{plain}", *(f"  {line}" if line else "" for line in shown.splitlines())]
    return "\n".join(lines)


def page_as_markdown(page: Mapping[str, Any]) -> str:
    """For the docs."""
    lines = [
        f"# {page['code']} {page['slug']}",
        "",
        f"*{page['family']}, severity {page['severity']}.* {page['title']}",
    ]
    for name, text in page["sections"].items():
        lines += ["", f"## {name}", "", text]
    return "\n".join(lines) + "\n"


def pages_index(pages: Sequence[Mapping[str, Any]]) -> str:
    """Index of all pages, by family."""
    lines = ["# Why training fails", "", "One page per cause; `stayfinite explain CODE` prints the same text."]
    for family, members in groupby(pages, key=lambda page: page["family"]):
        lines += ["", f"## {family.capitalize()}", "", "| code | cause | |", "|---|---|---|"]
        lines += [f"| {p['code']} | [{p['slug']}]({p['slug']}.md) | {p['title']} |" for p in members]
    return "\n".join(lines) + "\n"
