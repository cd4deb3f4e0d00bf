"""Terminal lines of the guard: one per event, silent otherwise, and a summary at the end of a run."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from stayfinite.core.decision import MONITORING, Action, Decision
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


NAMES = {"nan": "NaN", "inf": "inf", "-inf": "-inf"}
_NOT_FINITE = re.compile(r"\bloss is (nan|-?inf)\b")


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

    def decision(self, decision: Decision, done: Mapping[str, Any] | None = None, hint: str = "") -> None:
        """Print a decision, what was done beyond a veto, and a hint."""
        count = self._said[decision.code] = self._said[decision.code] + 1
        if count > ALWAYS_SHOWN and count & (count - 1) and decision.action in OFTEN:
            return
        often = f" ({count} of this kind so far)" if count > ALWAYS_SHOWN else ""
        verb = f" {VERBS[decision.action]} ({decision.code})"
        if decision.reason.endswith(MONITORING):
            verb = ""  # the reason says what became of the step
        elif done:
            verb = f" refused, {_done(decision.action, done)}"
        reason = _NOT_FINITE.sub(lambda found: f"the loss is {NAMES[found[1]]}", decision.reason)
        after = ". Weights unchanged." if decision.action is Action.VETO else ""
        self._say(f"step {decision.step}{verb}: {reason}{after}{often}{hint and f' {hint}'}", STYLES[decision.action])

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


def _done(action: Action, done: Mapping[str, Any]) -> str:
    """What the guard did after refused steps."""
    if "failed" in done:
        return f"{action} failed: {done['failed']}"
    if action is Action.CUT:
        return f"learning rate cut to {done['factor']:g}x for {done['steps']} steps"
    if action is Action.ROLLBACK:
        skipped = done.get("batches_passed_over", 0)
        batches = f", {skipped} batch{'es' * (skipped > 1)} skipped" if skipped else ""
        return f"rolled back from step {done['from_step']} to step {done['to_step']}{batches}"
    if action is Action.ESCALATE:
        return f"precision changed from {done['from_precision']} to {done['to_precision']}"
    return ", ".join(f"{name} {value}" for name, value in done.items()).replace("_", " ")


def _standard_console() -> Console:
    from rich.console import Console as RichConsole

    return RichConsole(stderr=True, soft_wrap=True)


MOST_GROUPS = 5
"""Groups listed."""
WORST = 3
"""Worst parameters named."""

WORTH_TELLING = 0.05
"""Report the slowest rank if its own share of a step exceeds the mean by this much."""


@dataclass(kw_only=True)
class Totals:
    """What a run came to.

    Attributes:
        steps: all steps, including refused ones.
        vetoes: refused steps by code.
        watched: bad steps taken while monitoring, by code.
        clipped: steps with clipped gradients.
        bounded: unusual steps with limited gradients.
        events: rollbacks after harmful steps, and changes of level reported as new phases.
        last_loss: loss of the last accepted step.
        lowest_scale: lowest loss scale of an fp16 scaler.
        bad: steps with NaN or infinity, by parameter.
        signs: post-training signals that fired, with their first step.
        silent: parameters without a gradient.
        slowest: rank, host, its own share of a step, and the mean share; None for a single rank.
    """

    steps: int = 0
    vetoes: Counter[str] = field(default_factory=Counter)
    watched: Counter[str] = field(default_factory=Counter)
    clipped: int = 0
    bounded: int = 0
    events: Counter[str] = field(default_factory=Counter)
    last_loss: float = math.nan
    lowest_scale: float | None = None
    bad: Counter[str] = field(default_factory=Counter)
    signs: dict[str, int] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    slowest: tuple[int, str, float, float] | None = None


def summary(
    run: Totals, *, unlearned: str, groups: Sequence[str], directory: str | None, remarks: Sequence[str] = ()
) -> str:
    """Summarize a run in a few lines.

    Arguments:
        unlearned: sentence about data never trained on; may be empty.
        groups: one sentence per group of rows with refused batches.
        directory: the run directory.
        remarks: further sentences.
    """
    refused = sum(run.vetoes.values())
    words = f"{run.steps:,} step{'' if run.steps == 1 else 's'}, {f'{refused:,}' if refused else 'none'} refused"
    words += f" ({_counted(run.vetoes)})" if run.vetoes else ""
    if run.watched:
        bad = sum(run.watched.values())
        words += f", {bad:,} bad one{'s' * (bad > 1)} taken while monitoring ({_counted(run.watched)})"
    words += f", {run.clipped:,} clipped"
    words += f", {run.bounded:,} bounded" if run.bounded else ""
    rollbacks, phases = run.events["rollback"], run.events["new-phase"]
    words += f", {rollbacks:,} rollback{'s' * (rollbacks > 1)}" if rollbacks else ""
    words += f", {phases:,} new phase{'s' * (phases > 1)}" if phases else ""
    if math.isfinite(run.last_loss):
        words += f"; last loss {run.last_loss:.4g}"
    if run.lowest_scale is not None:
        words += f"; lowest loss scale {run.lowest_scale:,.10g}"
    lines = [words]
    if run.bad and not (
        len(run.bad) > WORST and len(set(run.bad.values())) == 1
    ):  # the same in every layer says nothing
        worst = (f"{name} (NaN or inf in {bad} step{'s' * (bad > 1)})" for name, bad in run.bad.most_common(WORST))
        lines.append("worst layers: " + ", ".join(worst))
    if run.signs:
        signs = (f"{cause} from step {step}" for cause, step in run.signs.items())
        lines.append(f"WARNING: signals show {', '.join(signs)}")
    lines.extend(f"WARNING: {sentence}" for sentence in groups[:MOST_GROUPS])
    if unlearned:
        lines.append(unlearned)
    if run.silent:
        shown = ", ".join(run.silent[:5]) + (f" and {len(run.silent) - 5} more" if len(run.silent) > 5 else "")
        lines.append(f"no gradient when last looked at: {shown}")
    if run.slowest is not None and run.slowest[2] - run.slowest[3] >= WORTH_TELLING:
        rank, host, share, mean = run.slowest
        lines.append(f"rank {rank} ({host}) is slowest: {share:.0%} of each step (mean {mean:.0%})")
    lines.extend(remarks)
    if directory:
        lines.append(f"saved to {directory}")
    return "\n  ".join(lines)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
