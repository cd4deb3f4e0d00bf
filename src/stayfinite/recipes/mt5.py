"""``stayfinite train mt5``: a language model for a low-resource language, from raw text.

    stayfinite train mt5                                          # built-in text, a tiny model, two CPU cores
    stayfinite train mt5 --data corpus/ --model-name google/mt5-small --output-dir runs/first
    stayfinite train mt5 --data corpus/ --model small --tokenizer-dir tokenizers/mine --vocab-size 16000
    stayfinite train mt5 --data corpus/ --model-name google/mt5-base --load-in-8bit --lora-rank 16

The program reads top to bottom: settings, data, tokenizer, model, check, loop, result. Killed and started again with
the same settings it goes on from its newest good checkpoint.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from torch import Tensor
from torch.utils.data import DataLoader

from stayfinite.errors import UsageError
from stayfinite.recipes.language.blocks import (
    Blocks,
    MaskedBlocks,
    Objective,
    Packing,
    SeededBatches,
    blocks_for,
    masking_for,
    rows_in_words,
)
from stayfinite.recipes.language.evaluation import evaluate, fill_in, validation_examples
from stayfinite.recipes.language.streaming import streamed_corpus, text_files
from stayfinite.recipes.language.texts import corpus
from stayfinite.recipes.language.trained import Result, recorded_result, result_of, save_trained
from stayfinite.recipes.models import quiet_transformers
from stayfinite.recipes.running.directories import keep_checkpoints_in, remove_checkpoints, require_room
from stayfinite.recipes.running.launch import Launch
from stayfinite.recipes.running.logbook import Logger
from stayfinite.recipes.running.loop import STREAM_EVAL_STEPS, guarded
from stayfinite.recipes.running.optimizing import optimizer_for, schedule_for, steps_of, warmup_of
from stayfinite.recipes.running.options import Large
from stayfinite.recipes.running.place import PlannedPrecision, is_planned, plan_again
from stayfinite.recipes.running.processes import Place, place_of_process
from stayfinite.recipes.running.records import finished_result, read_launch, settings_of, write_result
from stayfinite.recipes.running.sharding import refuse_unshardable, refuse_unsplittable
from stayfinite.recipes.running.sharing import refuse_idle, weights_in_step
from stayfinite.recipes.seq2seq.batching import Padding, labels_in, tokens_in
from stayfinite.recipes.seq2seq.models import (
    SIZES,
    add_adapters,
    build_t5,
    compute_twice,
    fit_vocabulary,
    is_size,
    keep_shape,
    load_seq2seq,
    loss_of,
    rebuild,
)
from stayfinite.recipes.seq2seq.tokenizers import check_ids, has_tokenizer, load_tokenizer, trained_once
from stayfinite.recipes.settings import read_settings, require, require_usual
from stayfinite.recipes.streaming.loading import given, refuse_missing, steps_in_words

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Mt5(Large):
    """Train a T5 or mT5 language model on raw text. Without --data: a built-in text, a tiny model."""

    # -- data
    data: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["--data-dir", "--train-dir"])] = ()
    """Directories or files: .txt (one example per line), .jsonl, .csv, .tsv or .parquet with a text column; or
    hub:OWNER/NAME, with :CONFIGURATION and @SPLIT if there are several."""
    val: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["--val-dir"])] = ()
    """Validation data, same formats; by default a share of the texts is held out."""
    text_column: str | None = None
    """Text column; guessed by default."""
    val_share: float = 0.05
    """Share of the texts held out without --val."""
    min_characters: int = 10
    """Drop texts of this many characters or fewer."""
    block_size: int = 512
    """Tokens per block; longer texts become several blocks."""
    pack: Packing = "long"
    """`long` splits long texts and keeps short ones; `all` also packs short ones into a block."""

    # -- objective
    objective: Objective = "span_corruption"
    """T5's span corruption, or prefix_lm: the start of a block is given, the rest is predicted."""
    noise_density: float = 0.15
    """Share of the tokens that span corruption masks."""
    mean_span_length: float = 3.0
    """Mean tokens per masked span."""

    # -- model
    model_name: Annotated[str, tyro.conf.arg(aliases=["--model"])] = "tiny"
    """A size built here (tiny, small, medium, large), a directory, or a hub name (google/mt5-small)."""
    tokenizer_dir: str | None = None
    """Tokenizer directory: loaded if it exists, else trained on the data and saved there. By default the model's own.
    """
    vocab_size: int = 8000
    """Vocabulary size of a tokenizer trained here."""
    dropout: float = 0.1
    """Dropout of a model built here."""
    load_in_8bit: bool = False
    """Load the weights in 8 bits and train adapters."""
    lora_rank: int | None = None
    """Rank of LoRA adapters; 0 trains all weights. By default 16 with --load-in-8bit, else 0."""
    lora_alpha: float = 32.0
    """Weight of the adapters."""
    lora_dropout: float = 0.05
    """Dropout in front of the adapters."""
    lora_targets: tuple[str, ...] = ("q", "v")
    """Names of the layers that get adapters."""

    # -- places
    output_dir: str = "runs/mt5"
    checkpoint_dir: str | None = None
    """Where checkpoints go; by default OUTPUT_DIR/checkpoints."""
    cleanup_checkpoints: bool = False
    """Remove checkpoints after success; the models stay."""

    # -- training
    epochs: Annotated[int, tyro.conf.arg(aliases=["--num-train-epochs"])] = 3
    """Passes over the blocks, with new masks in each."""
    train_batch_size: Annotated[int, tyro.conf.arg(aliases=["--batch-size", "--per-device-train-batch-size"])] = 8
    """Blocks per batch and process."""
    eval_batch_size: Annotated[int, tyro.conf.arg(aliases=["--per-device-eval-batch-size"])] = 16
    """Blocks per evaluation batch."""
    gradient_accumulation_steps: Annotated[int, tyro.conf.arg(aliases=["--accumulation"])] = 4
    """Batches per step."""
    learning_rate: float | None = None
    """Peak learning rate; by default 1e-4, 3e-4 for adapters, and a fiftieth of each weight's size for a model built
    here."""
    schedule: Literal["linear", "cosine", "inverse_sqrt", "constant"] = "linear"
    """Decay of the learning rate after warmup."""
    warmup_steps: int | None = None
    """Warmup steps; by default a tenth of all, at most 1000."""
    warmup_ratio: float | None = None
    """Instead of --warmup-steps: share of the steps."""
    precision: Annotated[PlannedPrecision, tyro.conf.arg(aliases=["--mixed-precision"])] = "auto"
    """Compute precision: auto, fp32 (or no), fp16, bf16, plan (make a precision plan), or FILE.json (a plan). auto uses
    what the GPU supports, and fp16 only if proved safe."""

    # -- looking on
    eval_steps: int | None = None
    """Steps between evaluations; by default one per epoch."""
    eval_blocks: int = 1000
    """Most blocks per evaluation."""
    checkpoint_steps: Annotated[int | None, tyro.conf.arg(aliases=["--save-steps"])] = None
    """Steps between checkpoints; by default one per epoch, at least every 500 steps."""
    keep_checkpoints: Annotated[int, tyro.conf.arg(aliases=["--save-total-limit"])] = 2
    """Good checkpoints to keep."""
    samples: int = 2
    """Blocks whose gaps are filled and shown per evaluation."""
    wandb: bool = False
    """Log to Weights & Biases; same as --log-to wandb."""
    tensorboard: bool = False
    """Log to TensorBoard; same as --log-to tensorboard."""


BUILT_IN: dict[str, Any] = {
    "block_size": 64, "vocab_size": 512, "dropout": 0.0, "epochs": 8, "train_batch_size": 64, "eval_batch_size": 64,
    "gradient_accumulation_steps": 1, "logging_steps": 25, "eval_steps": 100,
}  # fmt: skip
"""Defaults of the built-in text."""
FIXED = frozenset({
    "data", "val", "text_column", "val_share", "min_characters", "block_size", "pack", "objective", "noise_density",
    "mean_span_length", "model_name", "tokenizer_dir", "vocab_size", "lora_rank", "lora_targets", "load_in_8bit",
    "train_batch_size", "gradient_accumulation_steps", "seed", "learning_rate", "weight_decay", "stream",
    "shuffle_rows", "eval_blocks",
})  # fmt: skip
"""Settings that must not change on resume."""
PER_RANK = ("train_batch_size",)
"""Settings per rank; their total over ranks must not change on resume."""


def main(arguments: Sequence[str]) -> None:
    """Run with these flags."""
    train(read_settings(Mt5, arguments, "stayfinite train mt5", settled))


def train(config: Mt5, say: Say = print, *, dataset: Any = None) -> Result:
    """Train, evaluate, keep the best model.

    Arguments:
        dataset: an object of the `datasets` library to train on, in addition to the settings.
    """
    config = replace(config, data=given(config.data, dataset))
    refuse_impossible(config)
    with place_of_process(config.device, config.tensor_parallel) as place, quiet_transformers():
        return _train(replace(config, lora_rank=_rank(config)), place, place.voice(say), dataset)


def _train(config: Mt5, place: Place, say: Say, dataset: Any) -> Result:
    launch = Launch.of("mt5", config, place, say, FIXED, PER_RANK)
    output, whole_batch = launch.output, config.train_batch_size * launch.in_batch

    # -- data --------------------------------------------------------------------------------------------------------
    found = partial(text_files, config.data, dataset)
    files, stream, training, validation = launch.read("texts", found, streamed_corpus, corpus)

    # -- tokenizer and model: what may fail to load first, before anything is written ---------------------------------
    loaded = _loaded(config, place)
    tokenizer = _tokenizer(config, training, output / "tokenizer", place)
    masking = masking_for(config.objective, tokenizer, density=config.noise_density, mean_span=config.mean_span_length)
    model = _model(config, loaded, tokenizer, say).to(place.device)
    refuse_unsplittable(model, place.tensor)
    if place.first:
        keep_shape(model, tokenizer, output)
    blocks = _blocks(config, training, tokenizer, "training" if stream is None else "a training sample", say)
    padding = Padding(pad=tokenizer.pad_token_id)
    held = _blocks(config, validation, tokenizer, "validation", say)
    asked = validation_examples(held, masking, config.eval_blocks)

    # -- batches, optimizer, schedule --------------------------------------------------------------------------------
    loader: Any
    if stream is not None:
        rows = max(1, whole_batch // place.row_ranks)
        loader = stream.loader(config, tokenizer, masking, place, say, batch_size=rows)
        batches = stream.batches(len(blocks) / rows, place.row_ranks, steps=config.max_steps)
    else:
        refuse_idle(len(blocks), whole_batch, place.row_ranks)
        order = SeededBatches(blocks.lengths, whole_batch, seed=config.seed, rank=place.row_rank, ranks=place.row_ranks)
        rows_of = MaskedBlocks(blocks, masking)
        loader = DataLoader(rows_of, batch_sampler=order, collate_fn=padding, pin_memory=place.device.type == "cuda")
        batches = len(loader)
    an_epoch = steps_of(batches, config.gradient_accumulation_steps, 1)
    steps = min(an_epoch * config.epochs, config.max_steps or an_epoch * config.epochs)
    if stream is not None:
        say(steps_in_words(an_epoch, steps))
    if (done := place.from_first(finished_result(output, steps))) is not None:
        say(f"{output} is already trained: {steps} steps, models in best/ and final/. Use --output-dir for a new run")
        return recorded_result(done, output)
    rate, relative = _learning_rate(config)
    optimizer = optimizer_for(model, lr=rate, weight_decay=config.weight_decay, device=place.device, relative=relative)
    warmup = warmup_of(config, steps, usual=min(1000, steps // 10))
    scheduler = schedule_for(optimizer, config.schedule, warmup=warmup, steps=steps)
    first_batch = padding([masking(blocks[number], number) for number in range(min(4, len(blocks)))])
    asked_for = {"no": "fp32"}.get(config.precision, config.precision)
    precision, scaler = launch.settle(asked_for, model, optimizer, first_batch, loss_of(model))

    # -- the check ---------------------------------------------------------------------------------------------------
    launch.record(steps, training, validation, None if stream is None else files)
    if place.first:
        keep_checkpoints_in(output, config.checkpoint_dir)
    launch.look(model, optimizer, first_batch, loss_of(model), precision=precision, scaler=scaler)

    # -- the loop ----------------------------------------------------------------------------------------------------
    team = launch.team(model, optimizer)
    policy = launch.policy(precision, min(500, an_epoch))
    eval_steps = config.eval_steps or (an_epoch if stream is None else min(an_epoch, STREAM_EVAL_STEPS))
    about = {"objective": config.objective, "block_size": config.block_size}
    save = partial(save_trained, model, tokenizer, about)
    with guarded(
        launch, team, optimizer, scheduler, scaler, forward=loss_of(team.trained), metric="loss", lowest=True,
        describe=rows_in_words(tokenizer, masking), policy=policy, steps=steps, max_norm=config.max_grad_norm,
        loggers=_loggers(config),
    ) as loop:  # fmt: skip
        autocast = loop.guard.autocast

        def evaluate_now(_: str) -> None:
            if loop.evaluated:
                return
            with loop.evaluating():
                found = evaluate(model, asked, padding, config.eval_batch_size, autocast=autocast, place=place)
                sound = math.isfinite(found.loss)
                loop.judge(f"step {loop.taken:>6}", found.to_json(), str(found), save, sound=sound)
                if place.first:
                    for line in fill_in(model, tokenizer, masking, asked[: config.samples], autocast):
                        say(f"  {line}")

        loop.resume()
        for group in loop.groups(
            loader, config.gradient_accumulation_steps, config.epochs if stream is None else None,
            over=partial(loop.over, steps), evaluate=evaluate_now, every=eval_steps,
        ):  # fmt: skip
            # Every target token counts the same, in any batch or rank.
            shares = weights_in_step([labels_in(batch) for batch in group], place.count)
            loop.step(group, shares, tokens_in)
        loop.finish(checkpoint=not config.cleanup_checkpoints)

    # -- result ------------------------------------------------------------------------------------------------------
    team.gather()
    loop.best.history = place.from_first(loop.best.history)
    result = result_of(loop.numbers(), loop.best)
    if place.first:
        save(output / "final")
        more = {"tokens_per_second": round(loop.logbook.rate), "evaluations": loop.best.history}
        write_result(output, result.to_json() | more)
        if config.cleanup_checkpoints:
            remove_checkpoints(output)
        say(str(result))
    place.wait()
    return result


def build(run_dir: str | Path) -> tuple[Any, Callable[[Any], Tensor]]:
    """Model and forward pass of a run, for ``stayfinite replay``; the weights come from the incident."""
    config: Mt5 = settings_of(Mt5, read_launch(run_dir, "mt5"))
    if config.load_in_8bit:  # frozen, so its weights are not in the incident
        model = load_seq2seq(config.model_name, cache_dir=config.cache_dir, eight_bit=True)
        fit_vocabulary(model, load_tokenizer(str(Path(run_dir) / "tokenizer")))
    else:
        model = rebuild(Path(run_dir))
    if rank := _rank(config):
        model = _adapted(config, model, rank)
    plan_again(model, Path(run_dir))
    return model.train(), loss_of(model)


# -- the parts, in the order in which they are used ------------------------------------------------------------------


def refuse_impossible(config: Mt5) -> None:
    """Raise UsageError if a setting, or a combination, is invalid."""
    require_usual(config)
    require(
        config,
        above_zero=("max_grad_norm", "lora_alpha"),
        at_least={
            1: (
                "mean_span_length", "train_batch_size", "eval_batch_size", "gradient_accumulation_steps", "eval_blocks",
            ),
            0: ("min_characters", "lora_rank"),
            8: ("block_size",),
            64: ("vocab_size",),
        },
        shares={"(0, 1)": ("val_share", "noise_density"), "[0, 1)": ("dropout", "lora_dropout", "warmup_ratio")},
    )  # fmt: skip
    planned = config.precision != "no" and is_planned(config.precision)
    refuse_unshardable(config, load_in_8bit=config.load_in_8bit, precision=planned)
    _refuse_places(config)
    _refuse_adapters(config)


def _refuse_places(config: Mt5) -> None:
    fix = "name a directory of .txt files, or .jsonl, .csv or .parquet files with a column of text"
    refuse_missing(config.data, fix)
    refuse_missing(config.val, fix, hub=False)
    require_room(config.output_dir)
    if config.checkpoint_dir is not None:
        require_room(config.checkpoint_dir, "--checkpoint-dir")
    if config.tokenizer_dir is not None and not has_tokenizer(Path(config.tokenizer_dir)):
        require_room(config.tokenizer_dir, "--tokenizer-dir")


def _refuse_adapters(config: Mt5) -> None:
    if config.load_in_8bit and config.lora_rank == 0:
        raise UsageError(
            "--load-in-8bit with --lora-rank 0: 8-bit weights cannot be trained, only adapters",
            fix="leave --lora-rank out or use 16; or leave --load-in-8bit out to train all weights",
        )
    if not (config.load_in_8bit or config.lora_rank):
        return
    if is_size(config.model_name):
        raise UsageError(
            f"adapters on {config.model_name!r}: its random weights would stay frozen",
            fix=(
                "--model-name with trained weights (google/mt5-small); or neither --load-in-8bit nor --lora-rank "
                f"with {', '.join(SIZES)}"
            ),
        )
    if config.tokenizer_dir is not None:
        raise UsageError(
            "adapters with --tokenizer-dir: embeddings of a new vocabulary would stay frozen",
            fix="leave --tokenizer-dir out, or train all weights",
        )


def settled(config: Mt5) -> Mt5:
    """Apply the defaults of the built-in text if it is used."""
    return config if config.data else replace(config, **BUILT_IN)


def _rank(config: Mt5) -> int:
    return (16 if config.load_in_8bit else 0) if config.lora_rank is None else config.lora_rank


def _loaded(config: Mt5, place: Place) -> Any:
    """The loaded model; None if it is built here."""
    if is_size(config.model_name):
        return None
    device = str(place.device) if config.load_in_8bit else None
    return load_seq2seq(config.model_name, cache_dir=config.cache_dir, eight_bit=config.load_in_8bit, device=device)


def _tokenizer(config: Mt5, texts: Sequence[str], own: Path, place: Place) -> Any:
    """The tokenizer: the run's own, the given one, the model's, or one trained on the texts."""
    kept = place.from_first(has_tokenizer(own))  # asked once: rank 0 may write it meanwhile
    chosen = own if kept or config.tokenizer_dir is None else Path(config.tokenizer_dir)
    if chosen == own and not kept and not is_size(config.model_name):
        return load_tokenizer(config.model_name, cache_dir=config.cache_dir)
    return trained_once(texts, chosen, config, place)


def _model(config: Mt5, loaded: Any, tokenizer: Any, say: Say) -> Any:
    model = build_t5(config.model_name, tokenizer, dropout=config.dropout) if loaded is None else loaded
    added = fit_vocabulary(model, tokenizer, shrink=config.tokenizer_dir is not None)
    if added:
        say(f"the embedding of {config.model_name} now has {abs(added):,} {'more' if added > 0 else 'fewer'} rows")
    check_ids(tokenizer, model)
    if config.gradient_checkpointing:
        compute_twice(model)
    return (_adapted(config, model, _rank(config)) if _rank(config) else model).train()


def _blocks(config: Mt5, texts: Sequence[str], tokenizer: Any, name: str, say: Say) -> Blocks:
    found = blocks_for(texts, tokenizer, config.block_size, config.pack)
    if not len(found):
        raise UsageError(f"{name}: every text has fewer than two tokens: nothing to predict", fix="check the data")
    say(f"{name}: {len(found):,} blocks of up to {config.block_size} tokens, {found.tokens:,} tokens in total")
    return found


def _adapted(config: Mt5, model: Any, rank: int) -> Any:
    return add_adapters(
        model, rank=rank, alpha=config.lora_alpha, dropout=config.lora_dropout, targets=config.lora_targets,
        eight_bit=config.load_in_8bit, checkpointing=config.gradient_checkpointing,
    )  # fmt: skip


def _learning_rate(config: Mt5) -> tuple[float, bool]:
    """The learning rate, and whether it is relative to each weight's size."""
    if config.learning_rate is not None:
        return config.learning_rate, False
    if is_size(config.model_name):
        return 0.02, True
    return (3e-4 if _rank(config) else 1e-4), False


def _loggers(config: Mt5) -> list[Logger]:
    short: list[tuple[bool, Logger]] = [(config.wandb, "wandb"), (config.tensorboard, "tensorboard")]
    return [*config.log_to, *(name for on, name in short if on)]
