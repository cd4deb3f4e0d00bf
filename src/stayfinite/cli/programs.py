"""A command with several programs: choose one by name and run it."""

import difflib
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from stayfinite.cli.ending import exit_code


def run_program(
    command: str,
    kind: str,
    about: str,
    programs: Mapping[str, tuple[str, str]],
    arguments: Sequence[str],
    hint: str = "",
) -> int:
    """Run the program named by the first argument.

    Arguments:
        command: as typed, after `stayfinite`.
        kind: what a program is called: recipe, verb.
        about: what the command does.
        programs: the module of each, with its ``main(arguments)``, loaded only when called, and what it does.
        hint: printed after the list.

    Returns:
        0 if it was done, 1 if its check refused to start, 2 on wrong use; a stopped training has its own code.
    """
    width = max(map(len, programs))
    lines = "\n".join(f"  {name:<{width}}  {what}" for name, (_, what) in programs.items())
    usage = (
        f"usage: stayfinite {command} {kind.upper()} [OPTIONS]\n\n{about}\n\n{lines}\n\n"
        f"stayfinite {command} {kind.upper()} --help explains its settings{hint}."
    )
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name, *flags = arguments
    if name not in programs:
        close = difflib.get_close_matches(name, programs, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        print(f"stayfinite {command}: no {kind} {name!r}.{meant}\n\n{usage}", file=sys.stderr)
        return 2

    def work() -> int:
        import_module(programs[name][0]).main(flags)
        return 0

    return exit_code(f"{command} {name}", work)
