"""What reinforcement learning starts from: a fine-tuned adapter, a model, or one that is built and fine-tuned here."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from torch import nn

from stayfinite.recipes.chat.adapters import WEIGHTS, read_record
from stayfinite.recipes.chat.bases import is_size
from stayfinite.recipes.chat.data import task_of
from stayfinite.recipes.chat.using import base_named
from stayfinite.recipes.running.records import RESULT
from stayfinite.recipes.sft import SYSTEM, Sft, settled, train

BEST, START = "best", "start"
TINY = "tiny"
"""What is built where nothing is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where it begins."""

    settings: Sft
    """Data, base and adapter, as a fine-tuning names them."""
    base: str
    """How the trained adapter will name its base."""


def start_of(config: Any, say: Callable[[str], None]) -> Start:
    """Find or make the start.

    Arguments:
        config: settings of the reinforcement learning. Names that a fine-tuning has too mean the same in both.

    Raises:
        UsageError: there is no adapter, or its base is gone.
    """
    shared = {each.name: getattr(config, each.name) for each in fields(Sft) if hasattr(config, each.name)}
    given = {name: value for name, value in shared.items() if value is not None}
    if config.start is None and config.model is not None and not is_size(config.model):
        settings = Sft(**given)
        return Start(settings=replace(settings, task=task_of(settings)), base=config.model)
    adapter = _adapter_in(config.start or _fine_tuned(config, say))
    record = read_record(adapter)
    base = base_named(record, str(adapter))
    formed = {
        "system": record.get("system", SYSTEM), "max_length": int(record.get("max_length", Sft().max_length)),
        "task": record.get("task") or "auto", "bits": record.get("base", {}).get("bits", "full"),
    }  # fmt: skip
    settings = Sft(**(formed | given | {"model": base, "adapter": str(adapter)}))
    if not config.train:
        settings = replace(settings, task=record.get("task") or task_of(settings))
    beside = str(record["base"]["model"]).startswith("../")  # kept by the run, and found from where it is
    named = os.path.relpath(base, Path(config.output_dir) / BEST) if beside else base
    return Start(settings=settings, base=named)


def without_dropout(model: nn.Module) -> None:
    """Switch dropout off: a ratio of two passes would be one of two masks."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def _adapter_in(place: str | Path) -> Path:
    """The adapter of a run or the one that was named itself."""
    inside = Path(place) / BEST
    return inside if (inside / WEIGHTS).is_file() else Path(place)


def _fine_tuned(config: Any, say: Callable[[str], None]) -> Path:
    """The run of a short fine-tuning: a model that is built here knows nothing, and would never be rewarded."""
    place = Path(config.output_dir) / START
    if (place / RESULT).is_file():
        return place
    size = config.model or TINY
    rows = config.sft_rows
    say(f"{size} is built here and knows nothing: it is first fine-tuned on {rows:,} questions, into {place}")
    asked = settled(Sft(model=size, train=config.train))
    given = ("train", "val", "question", "answer", "val_share", "held_out", "seed", "device", "precision")
    wanted = {name: getattr(config, name) for name in given}
    train(
        replace(asked, **wanted, output_dir=str(place), rows=rows, epochs=config.sft_epochs, eval_epochs=99, samples=0,
                check="off", logging_steps=50),
        lambda line: say(f"  start: {line}"),
    )  # fmt: skip
    return place
