"""Loggers that a program tells of its curves, by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from stayfinite.integrations.loggers.live import SinkFailed, following
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


@contextmanager
def telling(names: Sequence[Logger], directory: Path) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Within, these loggers follow the run directory; yields ``tell(step, scores)`` for what is not written there."""
    sinks = sinks_of(names, directory)

    def tell(step: int, scores: Mapping[str, float]) -> None:
        for sink in list(sinks):
            try:
                sink.scalars(step, {f"evaluation/{name}": value for name, value in scores.items()})
            except Exception as error:  # whatever a logger may raise: training goes on
                sinks.remove(sink)
                warnings.warn(f"{type(sink).__name__}: {type(error).__name__}: {error}", SinkFailed, stacklevel=2)

    with following(directory, *sinks):
        yield tell
