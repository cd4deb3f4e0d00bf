"""Going on with a run that was begun: with the settings that it was begun with, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.running.records import RUN, read_launch


def goes_on(directory: Path, recipe: str, config: Any, fixed: Collection[str], say: Callable[[str], None]) -> bool:
    """Whether there is a checkpoint to go on from.

    Arguments:
        directory: of the run.
        recipe: the program that asks.
        config: its settings now.
        fixed: those that cannot change half-way: data, model, order.
        say: is told where everything is written, whether a run there goes on, and which settings have changed.

    Raises:
        UsageError: what lies there is a run of other data or another model.
    """
    tell = (lambda _: None) if getattr(config, "dry_run", False) else say
    if not any((directory / "checkpoints").glob("step-*")) or not (directory / RUN).exists():
        if (directory / RUN).exists():
            tell(f"writing to {directory}: the run there has no checkpoint yet, so it starts from the beginning")
        else:
            tell(f"writing to {directory}; the same command resumes the run from its last checkpoint")
        return False
    before = read_launch(directory, recipe)
    now = json.loads(json.dumps(asdict(config)))
    changed = {name: (before[name], value) for name, value in now.items() if name in before and before[name] != value}
    words = {name: f"{name} {old!r} -> {new!r}" for name, (old, new) in changed.items()}
    if wrong := [words[name] for name in changed if name in fixed]:
        raise UsageError(
            f"{directory} holds a run with other settings: {'; '.join(wrong)}",
            fix="name another --output-dir, or remove that directory to start afresh",
        )
    tell(f"writing to {directory}: going on with the run there")
    if changed:
        say(f"going on with other settings than before: {'; '.join(words.values())}")
    return True
