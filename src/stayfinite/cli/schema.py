"""``stayfinite schema NAME``: the JSON Schema of what a command prints or a run writes."""

import argparse
import json
from collections.abc import Sequence

from stayfinite.cli.ending import exit_code
from stayfinite.core.schema_names import PRINTED, WRITTEN


def run(arguments: Sequence[str]) -> int:
    """Run the command; 2 if there is no such schema."""
    parser = argparse.ArgumentParser(
        "stayfinite schema", description="Print the JSON Schema of --json output and run files."
    )
    parser.add_argument(
        "name", nargs="?", help=("finding, diagnosis, check, run, incident, ...; without a name, list all")
    )
    asked = parser.parse_args(list(arguments))
    return exit_code("schema", lambda: _run(asked.name))


def _run(name: str | None) -> int:
    if name is None:
        width = max(map(len, [*PRINTED, *WRITTEN]))
        for heading, names in (("printed with --json", PRINTED), ("written into a run directory", WRITTEN)):
            print(f"\n{heading}")
            for each, what in names.items():
                print(f"  {each:<{width}}  {what}")
        return 0
    from stayfinite.schemas import schema

    print(json.dumps(schema(name), indent=1, ensure_ascii=False))
    return 0
