"""Settings that recipes share."""

from dataclasses import dataclass
from typing import Literal

from stayfinite.recipes.running.launch import Check
from stayfinite.recipes.running.logbook import Logger
from stayfinite.recipes.running.place import PlannedPrecision
from stayfinite.recipes.streaming.loading import Streaming


@dataclass(frozen=True, kw_only=True)
class Common:
    """Settings of every recipe, which may have defaults of its own.

    Attributes:
        output_dir: Output directory for everything: run, checkpoints, models, result. An existing run is resumed.
        weight_decay: Weight decay of matrices, not of norms and biases.
        max_grad_norm: Clip gradients to this norm.
        precision: Compute precision: auto, fp32, fp16, bf16, plan (make a precision plan), or FILE.json (a plan). auto
            uses what the GPU supports, and fp16 only if proved safe.
        seed: Seed for everything random: weights, order, dropout, sampling.
        device: cpu or cuda; by default the best available.
        check: Check model and data before the first step: stop on errors, warn, or off.
        keep_checkpoints: Good checkpoints to keep.
        logging_steps: Steps between log lines.
        log_to: Loggers that get the curves: tensorboard, wandb, mlflow, aim, trackio.
    """

    output_dir: str
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    precision: PlannedPrecision = "auto"
    seed: int = 0
    device: str = "auto"
    check: Check = "stop"
    keep_checkpoints: int = 2
    logging_steps: int = 50
    log_to: tuple[Logger, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Pretrained(Common):
    """Settings of recipes that may start from a pretrained model.

    Attributes:
        cache_dir: Cache directory for hub models.
        warmup_steps: Instead of --warmup-ratio: warmup steps.
        gradient_checkpointing: Recompute activations to save memory.
    """

    cache_dir: str | None = None
    warmup_steps: int | None = None
    gradient_checkpointing: bool = False


@dataclass(frozen=True, kw_only=True)
class Large(Pretrained):
    """Settings of recipes for data and models that do not fit one machine.

    Attributes:
        stream: Stream the data instead of loading it: on, off, or auto (above 1 GiB of text).
        shuffle_rows: Rows shuffled together when streaming.
        workers: Processes that read and tokenize when streaming; 0 does it between steps.
        max_steps: Stop after this many steps.
        shard: Shard weights, gradients and moments over ranks (FSDP2).
        tensor_parallel: Ranks that compute each layer together, for layers too large for one GPU.
    """

    stream: Streaming = "auto"
    shuffle_rows: int = 65_536
    workers: int = 0
    max_steps: int | None = None
    shard: bool = False
    tensor_parallel: int = 1


@dataclass(frozen=True, kw_only=True)
class Asking(Pretrained):
    """Settings of recipes that train a chat model on questions.

    Attributes:
        val: Evaluation data, same formats; by default a share of the training questions is held out.
        question: Question column; guessed by default.
        answer: Answer column; guessed by default.
        val_share: Share of the questions held out without --val.
        rows: Built-in training questions.
        held_out: Built-in evaluation questions, with other numbers.
        base_dtype: Dtype of the frozen weights; auto is bf16 when computing in bf16, else fp32.
        minutes: Stop after this many minutes of training; a resumed run has the rest.
        schedule: Decay of the learning rate after warmup.
        warmup_ratio: Share of the steps for warmup.
        eval_rows: Questions per evaluation; the first and the last one take all.
        new_tokens: Most tokens per answer; by default enough for the longest correct one.
        patience: Stop after this many evaluations without improvement; 0 to continue.
        samples: Answers shown per evaluation.
    """

    val: tuple[str, ...] = ()
    question: str | None = None
    answer: str | None = None
    val_share: float = 0.1
    rows: int = 8000
    held_out: int = 500
    base_dtype: Literal["auto", "fp32", "bf16"] = "auto"
    minutes: float | None = None
    schedule: Literal["linear", "cosine", "inverse_sqrt", "constant"] = "cosine"
    warmup_ratio: float = 0.05
    weight_decay: float = 0.0
    eval_rows: int = 200
    new_tokens: int | None = None
    patience: int = 0
    samples: int = 3
