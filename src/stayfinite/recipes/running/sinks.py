"""Loggers that a program tells of its curves, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from stayfinite.integrations.loggers.sinks import Sink, TensorBoardSink, TrackioSink, WandbSink

Logger = Literal["tensorboard", "wandb", "trackio"]


def sinks_of(names: Sequence[Logger], directory: Path) -> list[Sink]:
    """One sink for each name, for ``following(run_dir, *sinks)``."""
    makers: dict[Logger, Any] = {
        "tensorboard": lambda: TensorBoardSink(directory / "tensorboard"),
        "wandb": WandbSink,
        "trackio": TrackioSink,
    }
    return [makers[name]() for name in dict.fromkeys(names)]
