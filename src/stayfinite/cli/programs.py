"""A command with several programs under it: choose one by its name and run it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from stayfinite.cli.ending import exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One of them."""

    module: str
    """Where its ``main(arguments)`` is; loaded only when it is called."""
    what: str
    """What it does, in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """All of a command's."""

    command: str
    """As it is typed, after `stayfinite`."""
    kind: str
    """What one of them is called: recipe, verb."""
    about: str
    """What the command does."""
    hint: str
    """Said after the list."""
    listed: Mapping[str, Program]

    def run(self, arguments: Sequence[str]) -> int:
        """Run the program that the first argument names.

        Returns:
            0 when it was done, 1 when its check refused to start, 2 on wrong use; a training that stopped has its own.
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
