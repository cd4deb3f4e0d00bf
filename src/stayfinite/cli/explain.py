"""``stayfinite explain SF101``: what a rule means, why it happens, and how to fix it."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence

from stayfinite.cli.ending import tell_error
from stayfinite.core.schema_names import tagged
from stayfinite.errors import UsageError


def run(arguments: Sequence[str]) -> int:
    """Run the command; 2 if there is no such rule."""
    # argparse, so the explanation appears at once: this loads nothing else.
    parser = argparse.ArgumentParser(
        "stayfinite explain", description="What a rule means, why it happens, how to fix it."
    )
    parser.add_argument("rule", nargs="+", help="a code (SF101) or a slug (fp16-overflow)")
    parser.add_argument("--json", action="store_true", help="print as JSON and nothing else")
    asked = parser.parse_args(list(arguments))
    from stayfinite.report.pages import WHOLE, page_as_data, page_as_text
    from stayfinite.rules.registry import rule_of

    try:
        rules = [rule_of(name) for name in asked.rule]
    except UsageError as error:
        return tell_error("explain", error, as_json=asked.json)
    pages = [page_as_data(rule) for rule in rules]
    if asked.json:
        shown = [tagged("rule", page) for page in pages]
        print(json.dumps(shown[0] if len(shown) == 1 else shown, indent=1, ensure_ascii=False))
    else:
        colour = not os.environ.get("NO_COLOR") and (sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR")))
        width = shutil.get_terminal_size((WHOLE, 0)).columns
        print("\n\n".join(page_as_text(page, colour=colour, width=width) for page in pages))
    return 0
