"""Resume a run, with the same settings or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.running.records import RUN, read_launch, read_record


def goes_on(
    directory: Path,
    recipe: str,
    config: Any,
    fixed: Collection[str],
    say: Callable[[str], None],
    *,
    ranks: int = 1,
    per_rank: Collection[str] = (),
) -> bool:
    """Whether there is a checkpoint to resume from.

    Arguments:
        directory: of the run.
        recipe: name of the recipe.
        config: its current settings.
        fixed: settings that must not change: data, model, order.
        say: receives the output directory and changed settings.
        ranks: current number.
        per_rank: settings per rank, whose total over ranks must not change.

    Raises:
        UsageError: a run with other data or another model is there.
    """
    tell = (lambda _: None) if getattr(config, "dry_run", False) else say
    if not any((directory / "checkpoints").glob("step-*")) or not (directory / RUN).exists():
        if (directory / RUN).exists():
            tell(f"writing to {directory}: its run has no checkpoint yet, starting from the beginning")
        else:
            tell(f"writing to {directory}; resume with the same command")
        return False
    before = read_launch(directory, recipe)
    now = json.loads(json.dumps(asdict(config)))
    changed = {name: (before[name], value) for name, value in now.items() if name in before and before[name] != value}
    words = {name: f"{name} {old!r} -> {new!r}" for name, (old, new) in changed.items()}
    then = _ranks_of(directory)
    same = {name for name in per_rank if name in changed and then * (changed[name][0] or 0) == ranks * (now[name] or 0)}
    if wrong := [words[name] for name in changed if name in fixed and name not in same]:
        raise UsageError(
            f"{directory} holds a run with other settings: {'; '.join(wrong)}",
            fix="use another --output-dir, or remove that directory to start over",
        )
    tell(f"resuming the run in {directory}")
    if ranks != then and not same:
        say(f"ranks {then} -> {ranks}: batches and steps stay the same")
    if changed:
        say(f"resuming with changed settings: {'; '.join(words.values())}")
    return True


def ranks_in_batch(directory: Path, config: Any, ranks: int, per_rank: Collection[str], *, resuming: bool) -> int:
    """Number of ranks' rows in a batch: the current ranks, or those at the start of a resumed run.

    A resumed run keeps its batches and its position, whatever the number of ranks.

    Arguments:
        ranks: current number.
        per_rank: settings per rank. If changed, they were adjusted to the ranks.
    """
    if not resuming:
        return ranks
    before = read_record(directory / RUN)["config"]
    same = all(before.get(name) == getattr(config, name) for name in per_rank)
    return _ranks_of(directory) if same else ranks


def _ranks_of(directory: Path) -> int:
    return int(read_record(directory / RUN).get("ranks_in_batch", 1))
