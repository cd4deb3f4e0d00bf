"""TensorBoard, Weights & Biases, MLflow, Aim and trackio without a framework: sinks that follow the run directory.

Example:
    >>> from stayfinite.integrations.loggers import TensorBoardSink, following
    >>> guard = Guard(model, optimizer, run_dir="runs/first")
    >>> with following("runs/first", TensorBoardSink("runs/first/board")):
    ...     train(guard)

and for a run that is over: ``mirror("runs/first", TensorBoardSink("board"))``. The guard knows nothing of it: a sink
that fails or hangs costs a curve and never a step.
"""

from stayfinite.integrations.loggers.live import SinkFailed, following, mirror
from stayfinite.integrations.loggers.sinks import AimSink, MlflowSink, Sink, TensorBoardSink, TrackioSink, WandbSink

__all__ = [
    "AimSink",
    "MlflowSink",
    "Sink",
    "SinkFailed",
    "TensorBoardSink",
    "TrackioSink",
    "WandbSink",
    "following",
    "mirror",
]
