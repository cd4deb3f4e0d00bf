"""A rule's page as terminal text and as Markdown, both from its docstring."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.registry import family_of
from stayfinite.rules.rule import Rule

_HEADING = lazy_regex(r"^## (.+)$", re.MULTILINE)
_CODE = lazy_regex(r"`([^`]+)`")
_ITEM = lazy_regex(r"\s*(?:-|\d+\.)\s+")
_STANDS_ALONE = lazy_regex(r"\s*$|\s{4}|```|\||\s*(?:-|\d+\.)\s")
WHOLE, NARROWEST = 10_000, 20


def page_as_data(rule: Rule) -> dict[str, Any]:
    """A rule's page split into sections."""
    title, _, body = rule.page.strip().partition("\n")
    parts = _HEADING.split(body)
    sections = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {
        "code": rule.code, "slug": rule.slug, "severity": rule.severity, "family": family_of(rule),
        "title": title.strip(), "fix": rule.fix, "sections": sections,
    }  # fmt: skip


def page_as_text(page: Mapping[str, Any], *, colour: bool, width: int = WHOLE) -> str:
    """For a terminal of this width."""
    bold, dim, cyan, plain = ("\033[1m", "\033[2m", "\033[36m", "\033[0m") if colour else ("", "", "", "")
    lines = [
        f"{bold}{page['code']} {page['slug']}{plain}  {dim}{page['family']}, {page['severity']}{plain}",
        *wrapped(page["title"], width),
    ]
    for name, text in page["sections"].items():
        whole = "\n".join(wrapped(text, width - 2))
        shown = _CODE.sub(rf"{cyan}\1{plain}", whole) if colour else whole
        lines += ["", f"{bold}{name}{plain}", *(f"  {line}" if line else "" for line in shown.splitlines())]
    return "\n".join(lines)


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a page, its paragraphs and list items broken anew between words where one is too long."""
    lines = text.splitlines()
    if all(len(line) <= width for line in lines):
        return lines
    parts: list[list[str]] = []
    for line in lines:
        goes_on = parts and parts[-1][-1] and not _STANDS_ALONE.match(line) and not parts[-1][0].startswith("    ")
        if goes_on:
            parts[-1].append(line.strip())
        else:
            parts.append([line])
    return [line for part in parts for line in _broken(" ".join(part), width)]


def _broken(text: str, width: int) -> list[str]:
    if not text or text.startswith("    "):  # code
        return [text]
    item = _ITEM.match(text)
    hanging = " " * (item.end() if item else 0)
    return textwrap.wrap(
        text, max(width, NARROWEST), subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


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
