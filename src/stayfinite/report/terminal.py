"""Terminal lines of the guard: one per event, silent otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from stayfinite.core.decision import Action, Decision
from stayfinite.core.finding import Finding

ALWAYS_SHOWN = 5
"""Lines of one kind shown; after that only the 8th, 16th, 32nd ..."""

STYLES = {
    Action.VETO: "yellow", Action.STOP: "bold red", Action.ACCEPT: "cyan", Action.CLIP: "cyan",
    Action.CUT: "bold yellow", Action.ROLLBACK: "bold yellow", Action.ESCALATE: "bold yellow", Action.BOUND: "cyan",
}  # fmt: skip
OFTEN = frozenset({Action.VETO, Action.ACCEPT, Action.CLIP, Action.BOUND})
"""Decisions that may be frequent, so only some are shown."""

VERBS = {
    Action.VETO: "refused", Action.STOP: "stopped", Action.ACCEPT: "taken", Action.CLIP: "taken, clipped",
    Action.CUT: "refused, learning rate cut", Action.ROLLBACK: "refused, rolled back",
    Action.ESCALATE: "refused, precision changed", Action.BOUND: "bounded",
}  # fmt: skip


class Console(Protocol):
    """Anything that prints, such as a rich console."""

    def print(self, line: Any) -> None:
        """Print one line."""


class Voice:
    """Prints for the guard, on stderr by default."""

    def __init__(self, console: Console | None = None, prefix: str = "") -> None:
        self._prefix = prefix
        self._console = console if console is not None else _standard_console()
        self._said: Counter[str] = Counter()

    def decision(self, decision: Decision, done: Mapping[str, Any] | None = None) -> None:
        """Print a decision, and what was done beyond a veto."""
        count = self._said[decision.code] = self._said[decision.code] + 1
        if count > ALWAYS_SHOWN and count & (count - 1) and decision.action in OFTEN:
            return
        often = f" ({count} of this kind so far)" if count > ALWAYS_SHOWN else ""
        verb = VERBS[decision.action]
        if done:
            verb += f" ({', '.join(f'{name} {value}' for name, value in done.items())})".replace("_", " ")
        self._say(f"step {decision.step} {verb}, {decision.code}: {decision.reason}{often}", STYLES[decision.action])

    def finding(self, finding: Finding) -> None:
        evidence = "; ".join(finding.evidence)
        self._say(
            f"{finding.where}, {finding.code} {finding.cause}: {finding.title} ({evidence}). {finding.fix}", "magenta"
        )

    def text(self, text: str) -> None:
        self._say(text, "")

    def _say(self, text: str, style: str) -> None:
        # A closed terminal must not end the training; rich raises SystemExit then.
        with suppress(OSError, ValueError, SystemExit):
            self._print(f"stayfinite: {self._prefix}{text}", style)

    def _print(self, line: str, style: str) -> None:
        from rich.console import Console as RichConsole
        from rich.text import Text

        # Parameter names may hold brackets, so no markup.
        self._console.print(Text(line, style=style) if isinstance(self._console, RichConsole) else line)


def _standard_console() -> Console:
    from rich.console import Console as RichConsole

    return RichConsole(stderr=True, soft_wrap=True)
