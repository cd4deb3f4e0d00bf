"""The few lines at the end of a guarded run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

MOST_GROUPS = 5
"""Groups that are named."""

WORTH_TELLING = 0.05
"""Share of a step that the slowest rank takes beyond the mean, from which on it is named."""


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
    """What a run came to, in words.

    Arguments:
        steps: all steps, refused ones among them.
        vetoes: refused steps by code.
        watched: bad steps that were only watched, by code.
        clipped: steps whose gradients were clipped.
        bounded: unusual steps whose gradients were limited.
        rollbacks: times that the run went back because a step had done harm.
        phases: changes of level that were told as new phases.
        last_loss: loss of the last accepted step.
        lowest_scale: lowest loss scale of an fp16 scaler.
        worst: the worst parameters, each with what was wrong.
        signs: what the signals of post-training have shown, with the step at which they first did.
        silent: parameters that have no gradient.
        slowest: with several ranks, the one with the most time of its own: its number, its host, the share of a step
            that is its own, and the mean of all ranks.
        unlearned: what was never learned from, in words; empty where nothing was.
        groups: a sentence for each group of rows with refused batches.
        directory: where the run was written.
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
