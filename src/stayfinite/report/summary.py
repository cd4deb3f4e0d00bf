"""The few lines at the end of a guarded run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def summary(
    *,
    steps: int,
    vetoes: Mapping[str, int],
    watched: Mapping[str, int],
    clipped: int,
    last_loss: float,
    lowest_scale: float | None,
    worst: Sequence[tuple[str, str]],
    silent: Sequence[str],
    directory: str | None,
) -> str:
    """What a run came to, in words.

    Arguments:
        steps: all steps, refused ones among them.
        vetoes: refused steps by code.
        watched: bad steps that were only watched, by code.
        clipped: steps whose gradients were clipped.
        last_loss: loss of the last accepted step.
        lowest_scale: lowest loss scale of an fp16 scaler.
        worst: the worst parameters, each with what was wrong.
        silent: parameters that have no gradient.
        directory: where the run was written.
    """
    refused = sum(vetoes.values())
    words = f"{steps:,} step{'' if steps == 1 else 's'}, {f'{refused:,}' if refused else 'none'} refused"
    words += f" ({_counted(vetoes)})" if vetoes else ""
    if watched:
        words += f", {sum(watched.values()):,} bad ones taken while watching ({_counted(watched)})"
    words += f", {clipped:,} clipped"
    if math.isfinite(last_loss):
        words += f"; last loss {last_loss:.4g}"
    if lowest_scale is not None:
        words += f"; lowest loss scale {lowest_scale:,.10g}"
    lines = [words]
    if worst:
        lines.append("worst layers: " + ", ".join(f"{name} ({what})" for name, what in worst))
    if silent:
        shown = ", ".join(silent[:5]) + (f" and {len(silent) - 5} more" if len(silent) > 5 else "")
        lines.append(f"no gradient when last looked at: {shown}")
    if directory:
        lines.append(f"written to {directory}")
    return "\n  ".join(lines)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
