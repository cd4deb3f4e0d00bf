"""A command with several programs: choose one by name and run it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from stayfinite.cli.ending import exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program of a command."""

    module: str
    """Module with its ``main(arguments)``; loaded only when called."""
    what: str
    """One-line description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """All programs of a command."""

    command: str
    """As typed, after `stayfinite`."""
    kind: str
    """What a program is called: recipe, verb."""
    about: str
    """What the command does."""
    hint: str
    """Printed after the list."""
    listed: Mapping[str, Program]

    def run(self, arguments: Sequence[str]) -> int:
        """Run the program named by the first argument.

        Returns:
            0 if it was done, 1 if its check refused to start, 2 on wrong use; a stopped training has its own code.
        """
        if not arguments or arguments[0] in ("-h", "--help"):
            print(self._usage(), file=sys.stdout if arguments else sys.stderr)
            return 0 if arguments else 2
        name, *flags = arguments
        if name not in self.listed:
            close = difflib.get_close_matches(name, self.listed, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            print(
                f"stayfinite {self.command}: no {self.kind} {name!r}.{hint}\n\n{self._usage()}",
                file=sys.stderr,
            )
            return 2

        def work() -> int:
            import_module(self.listed[name].module).main(flags)
            return 0

        return exit_code(f"{self.command} {name}", work)

    def _usage(self) -> str:
        width = max(map(len, self.listed))
        lines = "\n".join(f"  {name:<{width}}  {program.what}" for name, program in self.listed.items())
        return (
            f"usage: stayfinite {self.command} {self.kind.upper()} [OPTIONS]\n\n{self.about}\n\n{lines}\n\n"
            f"stayfinite {self.command} {self.kind.upper()} --help explains its settings{self.hint}."
        )
