"""Summary lines at the end of a guarded run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

MOST_GROUPS = 5
"""Groups listed."""

WORTH_TELLING = 0.05
"""Report the slowest rank if its own share of a step exceeds the mean by this much."""


def summary(
    *,
    steps: int,
    vetoes: Mapping[str, int],
    watched: Mapping[str, int],
    clipped: int,
    bounded: int,
    rollbacks: int,
    phases: int,
    last_loss: float,
    lowest_scale: float | None,
    worst: Sequence[tuple[str, str]],
    signs: Mapping[str, int],
    silent: Sequence[str],
    slowest: tuple[int, str, float, float] | None,
    unlearned: str,
    groups: Sequence[str],
    directory: str | None,
) -> str:
    """Summarize a run in a few lines.

    Arguments:
        steps: all steps, including refused ones.
        vetoes: refused steps by code.
        watched: bad steps taken while monitoring, by code.
        clipped: steps with clipped gradients.
        bounded: unusual steps with limited gradients.
        rollbacks: rollbacks after harmful steps.
        phases: changes of level reported as new phases.
        last_loss: loss of the last accepted step.
        lowest_scale: lowest loss scale of an fp16 scaler.
        worst: the worst parameters, each with its problem.
        signs: post-training signals that fired, with their first step.
        silent: parameters without a gradient.
        slowest: rank, host, its own share of a step, and the mean share; None for a single rank.
        unlearned: sentence about data never learned from; may be empty.
        groups: one sentence per group of rows with refused batches.
        directory: the run directory.
    """
    refused = sum(vetoes.values())
    words = f"{steps:,} step{'' if steps == 1 else 's'}, {f'{refused:,}' if refused else 'none'} refused"
    words += f" ({_counted(vetoes)})" if vetoes else ""
    if watched:
        words += f", {sum(watched.values()):,} bad ones taken while monitoring ({_counted(watched)})"
    words += f", {clipped:,} clipped"
    words += f", {bounded:,} bounded" if bounded else ""
    words += f", {rollbacks:,} rollback{'s' * (rollbacks > 1)}" if rollbacks else ""
    words += f", {phases:,} new phase{'s' * (phases > 1)}" if phases else ""
    if math.isfinite(last_loss):
        words += f"; last loss {last_loss:.4g}"
    if lowest_scale is not None:
        words += f"; lowest loss scale {lowest_scale:,.10g}"
    lines = [words]
    if worst:
        lines.append("worst layers: " + ", ".join(f"{name} ({what})" for name, what in worst))
    if signs:
        lines.append("WARNING: signals show " + ", ".join(f"{cause} from step {step}" for cause, step in signs.items()))
    lines.extend(f"WARNING: {sentence}" for sentence in groups[:MOST_GROUPS])
    if unlearned:
        lines.append(unlearned)
    if silent:
        shown = ", ".join(silent[:5]) + (f" and {len(silent) - 5} more" if len(silent) > 5 else "")
        lines.append(f"no gradient when last looked at: {shown}")
    if slowest is not None and slowest[2] - slowest[3] >= WORTH_TELLING:
        rank, host, share, mean = slowest
        lines.append(f"rank {rank} ({host}) is slowest: {share:.0%} of each step (mean {mean:.0%})")
    if directory:
        lines.append(f"saved to {directory}")
    return "\n  ".join(lines)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
