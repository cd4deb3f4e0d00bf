"""The navigation, and the pages that list what is in a folder."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

from repository import ROOT, repository_pages

_INTRODUCTIONS = {
    "integrations": "# Integrations\n\nOne line in the trainer that you already use. Everything else stays as it is.",
    "recipes": "# Recipes\n\nComplete training programs, `stayfinite train NAME`. Each starts without a file or a "
    "download, on a built-in task; is checked before the first step, guarded to the last, and goes on where it was "
    "killed.",
}


def expand(entry: Any) -> list[Any]:
    """An entry of the navigation with its stars written out: all pages of a folder; alone, those with no place yet."""
    if isinstance(entry, dict):
        ((title, inside),) = entry.items()
        return [{title: [part for each in inside for part in expand(each)]}] if isinstance(inside, list) else [entry]
    if entry == "*":
        return [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in _named()]
    if entry == "rules/*":
        return _rules_by_family()
    if entry.endswith("/*"):
        named = entry.startswith("integrations")
        return [page if named else {Path(page).stem: page} for page in _pages_in(entry.removesuffix("/*"))]
    return [entry]


def contents_page(folder: str) -> str:
    """A page that lists the pages of a folder, each with what it says first."""
    lines = [_INTRODUCTIONS[folder], ""]
    for page in _pages_in(folder):
        title, first = _opening((ROOT / "docs" / page).read_text(encoding="utf-8"))
        name = page.removeprefix(f"{folder}/")
        lines.append(f"- [{title}]({name}): {first}" if first else f"- [{title}]({name})")
    return "\n".join(lines) + "\n"


def _named() -> list[str]:
    """The pages that mkdocs.yml has a place for by name."""
    return re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


def _rules_by_family() -> list[dict[str, list[str]]]:
    from stayfinite.rules.registry import all_rules, family_of

    return [
        {family.capitalize(): [f"rules/{rule.slug}.md" for rule in members]}
        for family, members in groupby(all_rules(), key=family_of)
    ]


def _pages_in(folder: str) -> list[str]:
    if folder.startswith("benchmarks"):
        known = [page for page in repository_pages() if page.rpartition("/")[0] == folder]
        return sorted(page for page in known if page.endswith(".md") and not page.endswith("README.md"))
    return sorted(f"{folder}/{path.name}" for path in (ROOT / "docs" / folder).glob("*.md"))


def _opening(text: str) -> tuple[str, str]:
    """A page's title and its first sentence, where it opens with words and not with code."""
    title, _, rest = text.partition("\n")
    first = rest.strip().split("\n\n")[0]
    sentence = re.match(r"(?!```|\||<!--).+?\.(?=\s|$)", first.replace("\n", " "))
    return title.removeprefix("# ").strip(), sentence[0] if sentence else ""
