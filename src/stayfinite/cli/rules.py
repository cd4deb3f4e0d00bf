"""``stayfinite rules``: list everything that can be recognized, or write its pages for the docs."""

import argparse
import json
import shutil
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

BESIDE = 9
"""Columns of a code with the blanks round it."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("stayfinite rules", description="List every known cause, by family.")
    parser.add_argument("--json", action="store_true", help="print as JSON and nothing else")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write a Markdown page for each rule into a directory")
    asked = parser.parse_args(list(arguments))
    from stayfinite.rules.registry import all_rules, family_of

    rules = all_rules()
    if asked.json:
        fields = ("code", "slug", "severity", "title")
        listed = [{name: getattr(rule, name) for name in fields} | {"family": family_of(rule)} for rule in rules]
        print(json.dumps(listed, indent=1))
        return 0
    if asked.docs is not None:
        from stayfinite.report.pages import page_as_data, page_as_markdown, pages_index

        pages = [page_as_data(rule) for rule in rules]
        asked.docs.mkdir(parents=True, exist_ok=True)
        for page in pages:
            (asked.docs / f"{page['slug']}.md").write_text(page_as_markdown(page), encoding="utf-8")
        (asked.docs / "README.md").write_text(pages_index(pages), encoding="utf-8")
        print(f"{asked.docs}: {len(pages)} pages")
        return 0
    from stayfinite.report.pages import WHOLE, wrapped

    columns = shutil.get_terminal_size((WHOLE, 0)).columns
    width = max(len(rule.slug) for rule in rules)
    narrow = BESIDE + width + max(len(rule.title) for rule in rules) > columns
    for family, members in groupby(rules, key=family_of):
        print(f"\n{family}")
        for rule in members:
            title = rule.title.rstrip(".")
            print(f"  {rule.code}  {rule.slug}" if narrow else f"  {rule.code}  {rule.slug:<{width}}  {title}")
            for line in wrapped(title, columns - BESIDE) if narrow else ():
                print(" " * BESIDE + line)
    print("\nstayfinite explain CODE explains one: meaning, causes, fix.")
    return 0
