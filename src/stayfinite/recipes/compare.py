"""``stayfinite train compare``: which of two images? A vision-language model answers First, Second or Similar.

    stayfinite train compare                                       # the built-in task: drawn shapes, a small model
    stayfinite train compare --train pairs.csv --model llava-hf/llava-1.5-7b-hf --base 4bit --output-dir runs/first
    stayfinite train compare --train pairs.csv --dry-run           # data, model and every check; nothing is written

The program reads top to bottom: settings, data, prompt, model, check, loop, result.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from stayfinite.autopsy.steps.surroundings import device_in_words
from stayfinite.core.policy import Policy
from stayfinite.errors import UsageError
from stayfinite.recipes.images import batching, models, records
from stayfinite.recipes.images.data import Apart, Task, pairs_for, refuse_missing_fold, table_for
from stayfinite.recipes.images.evaluating import Scores, evaluate
from stayfinite.recipes.images.losses import Comparison, class_weights, classes_in_words, prompt_for, ramp
from stayfinite.recipes.images.models import PATCH, assembled, base_of, build_base, is_size, uses_lora
from stayfinite.recipes.images.pairs import LABELS
from stayfinite.recipes.images.records import Result
from stayfinite.recipes.running.directories import require_room, write_whole
from stayfinite.recipes.running.launch import Launch, look_before_start
from stayfinite.recipes.running.loop import grouped, guarded
from stayfinite.recipes.running.optimizing import schedule_for, steps_of, warmup_of
from stayfinite.recipes.running.options import Pretrained
from stayfinite.recipes.running.place import is_planned, plan_again
from stayfinite.recipes.running.processes import Place, place_of_process
from stayfinite.recipes.running.records import read_launch, settings_of
from stayfinite.recipes.running.sharding import refuse_unshardable
from stayfinite.recipes.running.sharing import SharedBatches, refuse_idle, weights_in_step
from stayfinite.recipes.settings import read_settings, require, require_usual


@dataclass(frozen=True, kw_only=True)
class Compare(Pretrained):
    """Train a vision-language model to choose between two images. Without --train: drawn shapes, a small model."""

    # -- data
    train: str | None = None
    """A table with img1, img2, score1, score2, label (First, Second, Similar or 0, 1, 2), or chosen and rejected; or an
    ImageFolder with metadata.csv or with chosen/ and rejected/."""
    val: str | None = None
    """Validation data, same format; by default a fold of --train is held out."""
    image_dir: str | None = None
    """Directory that image names are relative to; by default that of the table."""
    margin: float = 0.0
    """Without labels: scores at most this far apart are Similar."""
    folds: int = 5
    """Number of folds, unless the table has a column `fold`."""
    fold: int = 0
    """The fold to hold out."""
    apart: Apart = "pairs"
    """What must not be in both splits: a pair and its swap, or any image (images), which drops pairs across."""
    class_weights: Literal["balanced", "none"] = "balanced"
    """Weight rare classes more."""
    look_at_images: int = 5000
    """Images to decode before the start, evenly spread; 0 for none."""
    bad_images: Literal["stop", "drop"] = "stop"
    """If one of them cannot be read: stop and name it, or drop its pairs."""
    built_in: Task = "size"
    """What the built-in task asks for: the size of a shape, or its brightness."""

    # -- model
    model: str = "tiny"
    """A LLaVA built here (tiny, small), a directory, or a hub name (llava-hf/llava-1.5-7b-hf)."""
    base: models.Base = "fp32"
    """How the frozen weights under LoRA are stored; 8bit and 4bit need bitsandbytes."""
    tuning: Literal["auto", "lora", "full"] = "auto"
    """Train adapters, or the whole language model. Auto: the whole of one built here."""
    lora_rank: int = 16
    """Rank of the adapters, on every linear layer of the language model."""
    lora_alpha: float = 32.0
    """Adapter scale: alpha / rank."""
    lora_dropout: float = 0.05
    """Adapter dropout."""
    vision: Literal["auto", "frozen", "trained"] = "auto"
    """Train the vision tower too. Auto: only of a model built here, and not under LoRA."""
    question: str = "Which image shows more of it?"
    """The question about the two images."""
    answers: tuple[str, str, str] = LABELS
    """Words for First, Second, Similar; each must start with a different token."""
    image_size: int = 32
    """Image side in pixels, for a model built here."""
    output_dir: str = "runs/compare"

    # -- training
    epochs: int = 3
    """Passes over the training pairs, each in both orders."""
    max_steps: int | None = None
    """Stop after this many steps."""
    batch_size: int = 8
    """Pairs per batch and rank; the model sees each twice."""
    accumulation: int = 1
    """Batches per step."""
    learning_rate: float = 1e-4
    """Peak learning rate of the language model or its adapters."""
    projector_learning_rate: float = 2e-5
    """Peak learning rate of the projector between images and language model."""
    schedule: Literal["linear", "cosine", "constant"] = "cosine"
    """Decay of the learning rates after warmup."""
    warmup_ratio: float = 0.05
    """Share of the steps for warmup."""
    max_grad_norm: float = 1.0
    """Clip gradients to this norm, after unscaling; 0 for no clipping."""
    consistency: float = 0.5
    """Weight of the consistency term: the symmetric KL divergence between a pair and its swap; 0 for none."""
    consistency_ramp: float = 0.3
    """Share of the steps over which that weight rises from 0."""
    shard: bool = False
    """Shard weights, gradients and moments over ranks (FSDP2)."""
    workers: int = 0
    """Processes that read images."""
    cache_megabytes: int = 512
    """Image cache in MB."""

    # -- looking on
    dry_run: bool = False
    """Read the data, build the model, run every check, and stop; nothing is written."""
    detect_anomaly: bool = False
    """Stop at the first operator whose gradient is NaN; slow. The guard explains bad steps without it."""
    deterministic: bool = False
    """Only algorithms that give the same bits each time."""
    metric: Literal["accuracy", "balanced_accuracy", "swap_consistency"] = "accuracy"
    """Metric that selects the best model."""
    patience: int = 0
    """Stop after this many epochs without improvement; 0 to continue."""
    logging_steps: int = 25
    checkpoint_steps: int | None = None
    """Steps between checkpoints; by default one per epoch."""


BUILT_IN: dict[str, Any] = {
    "learning_rate": 1e-3, "projector_learning_rate": 1e-3, "batch_size": 32, "epochs": 4, "warmup_ratio": 0.1,
}  # fmt: skip
"""Defaults of the built-in task."""
QUESTIONS = {"size": "Which image shows the larger shape?", "brightness": "Which image shows the brighter shape?"}
FIXED = (
    "train", "val", "image_dir", "margin", "fold", "folds", "apart", "model", "base", "tuning", "lora_rank",
    "lora_alpha", "vision", "question", "answers", "image_size", "batch_size", "accumulation", "seed", "built_in",
    "metric",
)  # fmt: skip
"""Settings that must not change on resume."""
PER_RANK = ("batch_size",)
"""Settings per rank; their total over ranks must not change on resume."""


def main(arguments: Sequence[str]) -> None:
    """Run with these flags."""
    train(read_settings(Compare, arguments, "stayfinite train compare", settled))


def train(config: Compare, say: Callable[[str], None] = print) -> Result:
    """Train, evaluate, keep the best model; with ``dry_run``, stop before the first step."""
    refuse_impossible(config)
    with place_of_process(config.device) as place, batching.deterministic(config.deterministic):
        if not config.dry_run:
            return _train(config, place, place.voice(say))
        with tempfile.TemporaryDirectory() as aside:
            result = _train(replace(config, output_dir=place.from_first(aside)), place, place.voice(say))
            place.wait()
            return result


def build(run_dir: str | os.PathLike[str]) -> tuple[Any, Callable[[batching.Batch], Tensor]]:
    """Model and forward pass of a run, for ``stayfinite replay RUN/incidents/0001``."""
    config = settings_of(Compare, read_launch(run_dir, "compare"))
    output = Path(run_dir)
    processor = models.load_processor(str(output / "processor"))
    device = torch.device("cpu")
    model = assembled(replace(config, output_dir=str(output)), device)
    plan_again(model, output)
    prompt = prompt_for(processor, config.question, config.answers)
    return model, Comparison(model, prompt, records.read_class_weights(output), device).loss


def _train(config: Compare, place: Place, say: Callable[[str], None]) -> Result:
    launch = Launch.of("compare", config, place, say, FIXED, PER_RANK)
    output, device, whole_batch = launch.output, place.device, config.batch_size * launch.in_batch
    say(f"device: {device_in_words(device)}")

    # -- data --------------------------------------------------------------------------------------------------------
    table = place.by_first(lambda: table_for(config, output))
    pairs = place.together(lambda: pairs_for(config, table, say))
    place.require_alike("pairs", [*pairs.training, *pairs.validation])
    refuse_idle(len(pairs.training), whole_batch, place.count)
    weights = class_weights(pairs.training, balanced=config.class_weights == "balanced")
    say(f"classes: {classes_in_words(pairs.training, weights)}")

    # -- model on its device, prompt, then the optimizer ---------------------------------------------------------------
    if not launch.resuming:
        place.by_first(lambda: build_base(config))
    processor = models.load_processor(base_of(config), cache_dir=config.cache_dir)
    model = assembled(config, device)
    prompt = prompt_for(processor, config.question, config.answers)
    say(f"model: {models.parameters_in_words(model)}\nprompt: {prompt}")
    pixels = batching.Pixels(processor.image_processor, megabytes=config.cache_megabytes)
    rows, held_out = batching.PairRows(pairs.training, pixels), batching.PairRows(pairs.validation, pixels)
    comparison = Comparison(model, prompt, weights, device)
    optimizer = models.two_rates(model, config, device)
    batches = SharedBatches(len(rows), whole_batch, seed=config.seed, rank=place.rank, ranks=place.count)
    loader = batching.loader_of(rows, batches, workers=config.workers, pin=device.type == "cuda")
    steps = steps_of(len(loader), config.accumulation, config.epochs)
    steps = min(steps, config.max_steps or steps)
    scheduler = schedule_for(optimizer, config.schedule, warmup=warmup_of(config, steps), steps=steps)

    # -- look before the first step ------------------------------------------------------------------------------------
    output.mkdir(parents=True, exist_ok=True)
    example = batching.with_weight(batching.first_batch(rows, config.batch_size), config.consistency)
    for odd in batching.look_at_batch(example, pairs.training):
        say(f"check: warning: {odd}")
    asked = "bf16" if config.base == "bf16" and config.precision == "auto" else config.precision
    precision, scaler = launch.settle(asked, model, optimizer, example, comparison.loss)

    def look() -> None:
        found = look_before_start(
            model, optimizer, example, comparison.loss, precision=precision, scaler=scaler,
            then="warn" if config.dry_run else config.check, directory=output, say=say,
        )  # fmt: skip
        if config.dry_run:
            assert found is not None
            batching.show_dry_run(found, steps, say)

    place.by_first(look)
    if config.dry_run:
        return Result(scores=None, first_loss=math.nan, last_loss=math.nan, steps=0, seconds=0.0, directory=output)
    launch.record(steps, pairs.training, pairs.validation)
    if place.first:
        write_whole(output / "processor", processor.save_pretrained)
        records.write_meta(
            output, config, pairs, weights, prompt, model, device=device, precision=precision, steps=steps
        )

    # -- the loop ------------------------------------------------------------------------------------------------------
    epochs = records.EpochLog(output)
    of_epoch = steps_of(len(loader), config.accumulation, 1)
    last = -(-steps // of_epoch)
    policy = Policy(
        precision=precision,
        checkpoint_steps=config.checkpoint_steps or min(steps, of_epoch),
        keep_checkpoints=config.keep_checkpoints,
    )
    rising = int(config.consistency_ramp * steps)
    team = launch.team(model, optimizer)
    trained = Comparison(team.trained, prompt, weights, device)
    with guarded(
        launch, team, optimizer, scheduler, scaler, forward=trained.loss, metric=config.metric, unit="pairs",
        describe=lambda batch: [str(pairs.training[row]) for row in batch["rows"].tolist()], policy=policy, steps=steps,
        max_norm=config.max_grad_norm or None,
    ) as loop, batching.anomalies(config.detect_anomaly, lambda: loop.taken):  # fmt: skip

        def ask() -> Scores:
            return evaluate(
                comparison, model, held_out, batch_size=2 * config.batch_size, autocast=loop.guard.autocast, place=place
            )

        def save(into: Path) -> None:
            records.save_trained(model, processor, config, prompt, into)

        if resumed := loop.resume():
            epochs.recall(resumed)
        records.memory_peak(device)
        for epoch in range(1, last + 1):
            began, before = time.monotonic(), loop.taken
            for group in grouped(loop.guard.batches(loader), config.accumulation) if before < steps else ():
                weight = ramp(loop.taken, weight=config.consistency, over=rising)
                shares = weights_in_step([batch["counted"].sum() for batch in group], place.count)
                weighted = [batching.with_weight(batch, weight) for batch in group]
                loop.step(
                    weighted, shares, lambda batch: batch["counted"].sum(),
                    signals=lambda share: {"parts": {name: part * share for name, part in trained.parts.items()}},
                )  # fmt: skip
                if loop.taken == steps:
                    break
            # Also evaluates an epoch whose process was killed right before its evaluation.
            if place.from_first(loop.taken > before or not epochs.has(epoch)):
                with loop.evaluating():
                    scores = ask()
                loop.judge(f"epoch {epoch}", scores.numbers(), str(scores), save)
                if place.first:
                    write_whole(output / "last", save)
                    rate, projector_rate = models.rates_of(optimizer)
                    epochs.write(
                        epoch, loop.taken, lr=rate, projector_lr=projector_rate, **scores.numbers(),
                        memory_peak_mib=records.memory_peak(device), seconds=time.monotonic() - began,
                    )  # fmt: skip
                    for wrong in scores.unreadable:
                        say(f"  not evaluated: {wrong}")
            if loop.impatient:
                break

        # -- result ----------------------------------------------------------------------------------------------------
        loop.finish(checkpoint=False)
        models.load_trained(model, loop.best.directory)
        scores = ask()
    result = Result(scores=scores, **loop.numbers())
    if place.first:
        records.keep_result(result, loop.best, loop.logbook.rate, say)
    say(f"{scores}. Saved the best model to {loop.best.directory}.")
    return result


# -- the parts, in the order in which they are used ------------------------------------------------------------------


def refuse_impossible(config: Compare) -> None:
    """Raise UsageError if a setting, or a combination, is invalid."""
    require_usual(config)
    require(
        config, above_zero=("projector_learning_rate", "lora_alpha"),
        at_least={
            1: ("lora_rank", "image_size"),
            0: ("consistency", "max_grad_norm", "margin", "look_at_images", "cache_megabytes"),
        },
        shares={"[0, 1]": ("consistency_ramp", "warmup_ratio"), "[0, 1)": ("lora_dropout",)},
    )  # fmt: skip
    refuse_unshardable(config, base=config.base in ("8bit", "4bit"), precision=is_planned(config.precision))
    if config.base != "fp32" and not uses_lora(config):
        raise UsageError(
            f"--base {config.base} with --tuning full: quantized weights cannot be trained",
            fix="--tuning lora, or --base fp32",
        )
    if config.base == "bf16" and config.precision not in ("auto", "bf16"):
        raise UsageError(f"--base bf16 with --precision {config.precision}: the two must agree", fix="--precision bf16")
    if config.image_size % PATCH and is_size(config.model):
        raise UsageError(f"--image-size {config.image_size}: expected a multiple of {PATCH}", fix="--image-size 32")
    if len(set(config.answers)) < len(config.answers) or not all(word.strip() for word in config.answers):
        raise UsageError(f"--answers {' '.join(config.answers)}: expected three different words", fix="--answers A B C")
    if config.val is not None and config.train is None:
        raise UsageError("--val without --train", fix="give --train too")
    if config.train is None:  # a table may have folds of its own
        refuse_missing_fold(config.fold, range(config.folds))
    if not config.dry_run:
        require_room(config.output_dir)


def settled(config: Compare) -> Compare:
    """Apply the defaults of the built-in task if it is used."""
    if config.train is not None:
        return config
    return replace(config, question=QUESTIONS[config.built_in], **BUILT_IN)
