"""Experiment loggers by name."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from stayfinite.errors import StayfiniteError
from stayfinite.integrations.loggers.live import SinkFailed, following
from stayfinite.integrations.loggers.sinks import AimSink, MlflowSink, Sink, TensorBoardSink, TrackioSink, WandbSink

Logger = Literal["tensorboard", "wandb", "mlflow", "aim", "trackio"]
PROJECT = "stayfinite"
"""Project in the loggers; ``WANDB_PROJECT`` overrides it for W&B."""


def sinks_of(names: Sequence[Logger], directory: Path) -> list[Sink]:
    """One sink per name, for ``following(run_dir, *sinks)``. Runs are named after their directory.

    A logger that cannot be opened (no login, no network) is skipped with a warning.

    Raises:
        MissingExtra: one is not installed.
    """
    title = directory.resolve().name
    makers: dict[Logger, Callable[[], Sink]] = {
        "tensorboard": lambda: TensorBoardSink(directory / "tensorboard"),
        "wandb": lambda: WandbSink(name=title, **_for_wandb(directory)),
        "mlflow": lambda: MlflowSink(directory, experiment=PROJECT),
        "aim": lambda: AimSink(experiment=PROJECT, name=title),
        "trackio": lambda: TrackioSink(project=PROJECT, name=title),
    }
    opened: list[Sink] = []
    for name in dict.fromkeys(names):
        try:
            opened.append(makers[name]())
        except StayfiniteError:
            raise
        except Exception as error:  # a logger may raise anything
            warnings.warn(f"{name} gets no records: {type(error).__name__}: {error}", SinkFailed, stacklevel=2)
    return opened


@contextmanager
def telling(names: Sequence[Logger], directory: Path) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Let the loggers follow the run directory; yield ``tell(step, scores)`` for other scores."""
    sinks = sinks_of(names, directory)

    def tell(step: int, scores: Mapping[str, float]) -> None:
        for sink in list(sinks):
            try:
                sink.scalars(step, {f"evaluation/{name}": value for name, value in scores.items()})
            except Exception as error:  # a logger may raise anything; training continues
                sinks.remove(sink)
                warnings.warn(f"{type(sink).__name__}: {type(error).__name__}: {error}", SinkFailed, stacklevel=2)

    with following(directory, *sinks):
        yield tell


def _for_wandb(directory: Path) -> dict[str, str]:
    """Arguments for W&B, unless its own variables set them."""
    told = {"WANDB_PROJECT": ("project", PROJECT), "WANDB_DIR": ("dir", str(directory))}
    return dict(pair for variable, pair in told.items() if not os.environ.get(variable))
