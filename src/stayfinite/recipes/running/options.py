"""Settings that recipes share."""

from __future__ import annotations

from dataclasses import dataclass

from stayfinite.recipes.running.checking import Check
from stayfinite.recipes.running.sinks import Logger
from stayfinite.recipes.streaming.choosing import Streaming


@dataclass(frozen=True, kw_only=True)
class Common:
    """Settings of every recipe, which may have defaults of its own.

    Attributes:
        output_dir: Output directory for everything: run, checkpoints, models, result. An existing run is resumed.
        weight_decay: Weight decay of matrices, not of norms and biases.
        seed: Seed for everything random: weights, order, dropout, sampling.
        device: cpu or cuda; by default the best available.
        check: Check model and data before the first step: stop on errors, warn, or off.
        logging_steps: Steps between log lines.
        log_to: Loggers that get the curves: tensorboard, wandb, mlflow, aim, trackio.
    """

    output_dir: str
    weight_decay: float = 0.01
    seed: int = 0
    device: str = "auto"
    check: Check = "stop"
    logging_steps: int = 50
    log_to: tuple[Logger, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Large(Common):
    """Settings of recipes for data and models that do not fit one machine.

    Attributes:
        stream: Stream the data instead of loading it: on, off, or auto (above 1 GiB of text).
        shuffle_rows: Rows shuffled together when streaming.
        workers: Processes that read and tokenize when streaming; 0 does it between steps.
        max_steps: Stop after this many steps.
        shard: Shard weights, gradients and moments over ranks (FSDP2).
        tensor_parallel: Ranks that compute each layer together, for layers too large for one GPU.
        cache_dir: Cache directory for hub models.
        max_grad_norm: Clip gradients to this norm.
    """

    stream: Streaming = "auto"
    shuffle_rows: int = 65_536
    workers: int = 0
    max_steps: int | None = None
    shard: bool = False
    tensor_parallel: int = 1
    cache_dir: str | None = None
    max_grad_norm: float = 1.0
