"""``stayfinite train translate``: train a T5 or ByT5 to translate, from pairs of texts.

    stayfinite train translate                                     # the built-in task: a minute on two CPU cores
    stayfinite train translate --train pairs.csv --model google/byt5-small --output-dir runs/first
    stayfinite train translate --train train.src train.tgt --val valid.src valid.tgt --model medium --batch-tokens 16000

The program reads top to bottom: settings, data, tokenizer, model, check, loop, result.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.recipes.models import quiet_transformers
from stayfinite.recipes.running.directories import require_room
from stayfinite.recipes.running.launch import Launch
from stayfinite.recipes.running.loop import STREAM_EVAL_STEPS, guarded
from stayfinite.recipes.running.optimizing import Average, optimizer_for, steps_of
from stayfinite.recipes.running.options import Large
from stayfinite.recipes.running.place import is_planned, plan_again
from stayfinite.recipes.running.processes import Place, place_of_process
from stayfinite.recipes.running.recording import RecordedLoss, compile_blocks
from stayfinite.recipes.running.records import finished_result, read_launch, settings_of, write_result
from stayfinite.recipes.running.sharding import refuse_unshardable, refuse_unsplittable
from stayfinite.recipes.running.sharing import refuse_idle, weights_in_step
from stayfinite.recipes.running.timing import refuse_untimed, schedule_of
from stayfinite.recipes.seq2seq.batching import labels_in, loading_of, rows_in_words, tokens_in
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.seq2seq.encoding import Encoding, Segmenter
from stayfinite.recipes.seq2seq.evaluating import Evaluation, Result, samples
from stayfinite.recipes.seq2seq.models import (
    SIZES,
    TO_TRAIN,
    build_t5,
    compute_twice,
    fit_vocabulary,
    is_size,
    keep_shape,
    load_seq2seq,
    load_weights,
    loss_of,
    rebuild,
    save_trained,
)
from stayfinite.recipes.seq2seq.pairs import Form, files_of_pairs, pairs_for
from stayfinite.recipes.seq2seq.streaming import streamed_pairs
from stayfinite.recipes.seq2seq.tokenizers import check_ids, load_tokenizer, trained_once
from stayfinite.recipes.settings import read_settings, require, require_usual
from stayfinite.recipes.streaming.loading import given, opened, steps_in_words


@dataclass(frozen=True, kw_only=True)
class Translate(Large):
    """Train a T5 or ByT5 to translate, from pairs of texts. Without --train: a built-in task, a small model."""

    # -- data
    train: tuple[str, ...] = ()
    """CSV, TSV, JSON, JSONL or Parquet tables, TMX, OPUS zips, or two aligned texts, source first. Files, directories,
    patterns, or a hub's data set (hub:owner/name)."""
    val: tuple[str, ...] = ()
    """Validation data, same formats; by default a share of the training pairs is held out."""
    source: str | None = None
    """Source column; guessed by default."""
    target: str | None = None
    """Target column; guessed by default."""
    group: str | None = None
    """Group column (a document, a tablet); a group is never in both splits."""
    val_share: float = 0.1
    """Share of the pairs, by group, held out without --val."""
    normalise: tuple[Form, ...] = ("nfc", "spaces")
    """Normalization of sources, in training and in use."""
    prefix: str = ""
    """Put before every source: `translate Akkadian to English: `."""
    max_ratio: float = 8.0
    """Drop pairs with one side this many times longer than the other."""
    max_source_length: int = 256
    """Most tokens (bytes for ByT5) of a source."""
    max_target_length: int = 256
    """Most tokens (bytes for ByT5) of a target."""
    too_long: Literal["cut", "drop"] = "cut"
    """Truncate or drop training pairs that are longer."""
    two_way: bool = False
    """Also train the other direction: `<extra_id_0>` before a text translates it back."""
    segmentations: int = 0
    """Add each pair this many times with its words split at random. Needs a vocabulary trained here."""

    # -- model
    model: str = "tiny"
    """A size built here (tiny, small, medium, large), a directory, or a hub name."""
    tokenizer: str | None = None
    """A directory, a hub name, or `bytes`; by default the model's own, or one trained on the data."""
    vocab_size: int = 8000
    """Vocabulary size of a tokenizer trained here."""
    dropout: float = 0.1
    """Dropout of a model built here."""
    encoder_layers: int | None = None
    """Encoder layers of a model built here."""
    decoder_layers: int | None = None
    """Decoder layers of a model built here; fewer translate faster."""
    output_dir: str = "runs/translate"

    # -- training
    epochs: int | None = None
    """Passes over the training pairs; by default 10, or as many as fit into --minutes."""
    minutes: float | None = None
    """Minutes for training with evaluations; the schedule ends with it. A resumed run has the rest."""
    batch_size: int = 4
    """Pairs per batch and rank."""
    batch_tokens: int | None = None
    """Instead of --batch-size: most tokens per batch and rank, padding included."""
    accumulation: int = 4
    """Batches per step."""
    learning_rate: float | None = None
    """Peak learning rate; by default 1e-4, and 0.02 with relative rates."""
    rates: Literal["auto", "same", "relative"] = "auto"
    """One rate for all weights, or relative to each weight's size, which a new T5 needs; auto is relative for a model
    built here without a learning rate."""
    schedule: Literal["linear", "cosine", "inverse_sqrt", "constant"] = "linear"
    """Decay of the learning rate after warmup."""
    warmup_ratio: float = 0.1
    """Share of the training for warmup."""
    label_smoothing: float = 0.0
    """Label smoothing."""
    ema: float = 0.0
    """Average the weights with this decay (0.999) and evaluate the average; 0 for none."""
    compile: bool = False
    """Compile the model's blocks: the first steps take a minute or two, later ones are faster, mostly on a GPU."""
    graphs: bool = False
    """Record forward and backward as CUDA graphs: for small models on large GPUs."""
    gradient_checkpointing: bool = True
    length_buckets: bool = True
    """Put pairs of similar length into a batch."""

    # -- looking on
    eval_epochs: int = 1
    """Epochs between evaluations."""
    eval_rows: int = 500
    """Validation pairs translated per evaluation; the last one takes all."""
    eval_batch_size: int = 64
    """Texts per batch."""
    metric: Literal["bleu", "chrf", "mean"] = "mean"
    """Metric that selects the best model."""
    patience: int = 0
    """Stop after this many evaluations without improvement; 0 to continue."""
    beams: int = 4
    """Beams of the last evaluation; earlier ones are greedy."""
    samples: int = 3
    """Translations shown per evaluation."""
    checkpoint_steps: int | None = None
    """Steps between checkpoints; by default one per epoch, and with --minutes every twentieth of the time."""


BUILT_IN: dict[str, Any] = {
    "batch_size": 32, "accumulation": 1, "gradient_checkpointing": False, "epochs": 2, "vocab_size": 384,
    "max_source_length": 48, "max_target_length": 48, "dropout": 0.0, "eval_rows": 100,
}  # fmt: skip
"""Defaults of the built-in task."""
EPOCHS = 10
RATE, RELATIVE_RATE = 1e-4, 0.02
FIXED = frozenset({
    "train", "source", "target", "group", "val_share", "normalise", "prefix", "max_ratio", "max_source_length",
    "max_target_length", "too_long", "model", "tokenizer", "vocab_size", "batch_size", "batch_tokens", "accumulation",
    "length_buckets", "graphs", "seed", "stream", "shuffle_rows", "two_way", "segmentations", "encoder_layers",
    "decoder_layers", "val", "eval_rows", "metric",
})  # fmt: skip
"""Settings that must not change on resume."""
PER_RANK = ("batch_size", "batch_tokens")
"""Settings per rank; their total over ranks must not change on resume."""


def train(config: Translate, say: Callable[[str], None] = print, *, dataset: Any = None) -> Result:
    """Train, evaluate, keep the best model.

    Arguments:
        dataset: an object of the `datasets` library to train on, in addition to the settings.
    """
    config = replace(config, train=given(config.train, dataset))
    refuse_impossible(config)
    config = _resolved(config)
    with place_of_process(config.device, config.tensor_parallel) as place, quiet_transformers():
        refuse_place(config, place)
        return _train(config, place, place.voice(say), dataset)


def _train(config: Translate, place: Place, say: Callable[[str], None], dataset: Any) -> Result:
    launch = Launch.of("translate", config, place, say, FIXED, PER_RANK)
    output, device, in_batch = launch.output, place.device, launch.in_batch

    # -- data --------------------------------------------------------------------------------------------------------
    found = partial(opened, config.train, files_of_pairs, dataset)
    files, stream, training, validation = launch.read("pairs", found, streamed_pairs, pairs_for)

    # -- tokenizer and model -----------------------------------------------------------------------------------------
    tokenizer = _tokenizer(config, training, launch)
    limits = (config.max_source_length, config.max_target_length)
    encode = Encoding(
        tokenizer=tokenizer, prefix=config.prefix, limits=limits, too_long=config.too_long, two_way=config.two_way,
        segment=_segmenter(config, tokenizer, output), segmentations=config.segmentations,
    )  # fmt: skip
    examples = encode(training, say)
    whole_batch = config.batch_size * in_batch
    if stream is None:
        refuse_idle(len(examples), None if config.batch_tokens else whole_batch, place.row_ranks)
    model = _model(config, tokenizer).to(device)
    refuse_unsplittable(model, place.tensor)
    compute_loss = loss_of(model, config.label_smoothing)
    evaluate = Evaluation(tokenizer=tokenizer, prefix=config.prefix, limits=limits, batch_size=config.eval_batch_size)

    # -- batches, optimizer, schedule --------------------------------------------------------------------------------
    tokens = config.batch_tokens and config.batch_tokens * in_batch
    load = partial(
        loading_of, examples, tokenizer.pad_token_id, device, buckets=config.length_buckets, few_forms=config.graphs,
        seed=config.seed,
    )  # fmt: skip
    loader: Any
    counts: Callable[[int], Iterable[int]]
    if stream is None:
        loading = load(batch_size=whole_batch, tokens=tokens, rank=place.row_rank, ranks=place.row_ranks)
        loader, counts = loading.loader, loading.sampler.counts
    else:
        rows, room = max(1, whole_batch // place.row_ranks), tokens and max(1, tokens // place.row_ranks)
        loading = load(batch_size=rows, tokens=room)
        loader = stream.loader(
            config, encode, loading, place, say, rows=len(examples), batch_size=rows, tokens=room
        )  # fmt: skip
        counts = partial(repeat, stream.batches(len(loading.sampler), place.row_ranks, steps=config.max_steps))
    optimizer = optimizer_for(
        model, lr=config.learning_rate or RATE, weight_decay=config.weight_decay, device=device,
        relative=config.rates == "relative",
    )  # fmt: skip
    steps = _planned_steps(config, counts)
    an_epoch = steps_of(next(iter(counts(1))), config.accumulation, 1)
    if stream is not None:
        say(steps_in_words(an_epoch, steps))
    scheduler = schedule_of(config, optimizer, steps, place)

    # -- look before the first step ----------------------------------------------------------------------------------
    first = loading.padding(examples[: min(config.batch_size, 16)])
    precision, scaler = launch.settle(config.precision, model, optimizer, first, compute_loss)
    launch.record(steps, training, validation, None if stream is None else files)
    if place.first:
        keep_shape(model, tokenizer, output)
    launch.look(model, optimizer, first, compute_loss, precision=precision, scaler=scaler)

    # -- the loop ----------------------------------------------------------------------------------------------------
    average = Average(model, config.ema) if config.ema else None
    if config.compile:
        compile_blocks(model, say)
    team = launch.team(model, optimizer)
    judged = model if average is None else average.module
    forward = RecordedLoss(team.trained, loss_of(team.trained, config.label_smoothing), say, wanted=config.graphs)
    with guarded(
        launch, team, optimizer, scheduler, scaler, forward=forward, describe=rows_in_words(tokenizer), ema=average,
        metric=config.metric, steps=steps, policy=launch.policy(precision, an_epoch), max_norm=config.max_grad_norm,
    ) as loop:  # fmt: skip
        if (resumed := loop.resume()) and average is not None:
            average.update(resumed)
        loop.record_end()
        over = partial(loop.over, config.max_steps if stream is None else steps, stop_early=stream is not None)

        def evaluate_now(where: str) -> None:
            """Evaluate, unless done after this step already."""
            if loop.evaluated:
                return
            rows = validation[: config.eval_rows]
            with loop.evaluating():
                scores, translations = evaluate(judged, rows, beams=1, autocast=loop.guard.autocast, place=place)
                save = partial(save_trained, judged, tokenizer, config)
                loop.judge(where, scores.to_json(), str(scores), save)
            if config.samples:
                say(samples(rows, translations, config.samples))

        for group in loop.groups(
            loader, config.accumulation, config.epochs if stream is None else None, over=over, evaluate=evaluate_now,
            every=min(an_epoch, STREAM_EVAL_STEPS) if stream is not None else 0,
            due=lambda epoch: epoch % config.eval_epochs == 0,
        ):  # fmt: skip
            # The mean over all tokens of the step, on all ranks.
            shares = weights_in_step([labels_in(batch) for batch in group], place.count)
            loop.step(group, shares, tokens_in, around=forward.replaying)
            if average is not None:
                average.update(loop.taken)

        # -- result --------------------------------------------------------------------------------------------------
        loop.finish()
        load_weights(judged, loop.best.directory)
        scores, _ = evaluate(judged, validation, beams=config.beams, autocast=loop.guard.autocast, place=place)
        result = Result(scores=scores, tokens_per_second=loop.logbook.rate, **loop.numbers())
        trained = None if loop.taken > resumed else finished_result(output, resumed)
        if place.first:
            write_result(output, result.to_json(trained) | {"evaluations": loop.best.history})
    say(f"{scores}. Saved the best model to {loop.best.directory}.")
    return result


def main(arguments: Sequence[str]) -> None:
    """Run with these flags."""
    train(read_settings(Translate, arguments, "stayfinite train translate", settled))


def build(run_dir: str | Path) -> tuple[Any, Callable[[dict[str, Tensor]], Tensor]]:
    """Model and forward pass of a run, for ``stayfinite replay``; the weights come from the incident."""
    config = settings_of(Translate, read_launch(run_dir, "translate"))
    model = _prepared(rebuild(Path(run_dir)), config)
    plan_again(model, Path(run_dir))
    return model, loss_of(model, config.label_smoothing)


# -- the parts, in the order in which they are used ------------------------------------------------------------------


def refuse_impossible(config: Translate) -> None:
    """Raise UsageError if a setting, or a combination, is invalid."""
    if config.val and not config.train:
        raise UsageError("--val without --train", fix="--train pairs.csv --val others.csv")
    if config.graphs and config.gradient_checkpointing:
        raise UsageError(
            "--graphs with gradient checkpointing: recomputation needs the same random numbers, which a graph cannot "
            "replay",
            fix="--graphs --no-gradient-checkpointing",
        )
    if config.graphs and config.compile:
        raise UsageError(
            "--graphs with --compile: a recompilation would break the recording",
            fix="remove --compile",
        )
    if (config.encoder_layers or config.decoder_layers) and not is_size(config.model):
        raise UsageError(
            f"--encoder-layers and --decoder-layers shape a model built here, not {config.model!r}",
            fix=f"remove them, or --model {' | '.join(SIZES)}",
        )
    if is_size(config.model):
        _refuse_deeper_decoder(config)
    refuse_unshardable(config, ema=config.ema, compile=config.compile, precision=is_planned(config.precision))
    require_usual(config)
    require(
        config,
        above_zero=("max_grad_norm",),
        at_least={
            1: (
                "batch_tokens", "eval_batch_size", "beams", "vocab_size", "max_ratio", "encoder_layers",
                "decoder_layers",
            ),
            0: ("segmentations",),
            4: ("max_source_length", "max_target_length"),
        },
        shares={"[0, 1)": ("warmup_ratio", "label_smoothing", "dropout", "ema"), "(0, 1)": ("val_share",)},
    )  # fmt: skip
    refuse_untimed(config)
    require_room(config.output_dir)


def _refuse_deeper_decoder(config: Translate) -> None:
    """transformers sizes a T5's cache by its encoder, so generation would fail after the training."""
    usual = SIZES[config.model]["num_layers"]
    encoder, decoder = config.encoder_layers or usual, config.decoder_layers or usual
    if decoder > encoder:
        raise UsageError(
            f"{decoder} decoder layers but {encoder} encoder layers: transformers cannot generate with a T5 whose "
            "decoder is deeper than its encoder",
            fix=f"--decoder-layers {encoder}, or --encoder-layers {decoder}",
        )


def refuse_place(config: Translate, place: Place) -> None:
    """Raise UsageError for --graphs without CUDA or with several ranks."""
    if config.graphs and place.device.type != "cuda":
        raise UsageError(f"--graphs needs a CUDA device, not {place.device}", fix="remove --graphs")
    if config.graphs and place.count > 1:
        raise UsageError(
            f"--graphs does not work on {place.count} ranks: a graph does not reduce gradients",
            fix="remove --graphs, or train on one GPU",
        )


def settled(config: Translate) -> Translate:
    """Apply the defaults of the built-in task if it is used."""
    return config if config.train else replace(config, **BUILT_IN)


def _resolved(config: Translate) -> Translate:
    """Fill in the settings left to the recipe."""
    if config.rates == "auto":
        fresh = is_size(config.model) and config.learning_rate is None
        config = replace(config, rates="relative" if fresh else "same")
    if config.learning_rate is None:
        config = replace(config, learning_rate=RELATIVE_RATE if config.rates == "relative" else RATE)
    if config.epochs is None and config.minutes is None and config.max_steps is None:
        config = replace(config, epochs=EPOCHS)
    return config


def _tokenizer(config: Translate, pairs: Sequence[Pair], launch: Launch) -> Any:
    """The tokenizer: the run's own if it is resumed, the given one, the model's, or one trained on the pairs."""
    own = launch.output / "tokenizer"
    if launch.resuming:
        return load_tokenizer(str(own))
    if config.tokenizer is not None:
        return load_tokenizer(config.tokenizer, cache_dir=config.cache_dir)
    if not is_size(config.model):
        fix = f"{TO_TRAIN}; --tokenizer if it has none"
        return load_tokenizer(config.model, cache_dir=config.cache_dir, fix=fix)
    texts = [text for pair in pairs for text in (config.prefix + pair.source, pair.target)]
    return trained_once(texts, own, config, launch.place, anew=True)


def _segmenter(config: Translate, tokenizer: Any, output: Path) -> Segmenter | None:
    if not config.segmentations:
        return None
    directory = output / "tokenizer" if config.tokenizer is None else Path(config.tokenizer)
    return Segmenter(tokenizer, directory / "spiece.model", seed=config.seed)


def _model(config: Translate, tokenizer: Any) -> Any:
    if is_size(config.model):
        model = build_t5(
            config.model, tokenizer, dropout=config.dropout, encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
        )  # fmt: skip
    else:
        model = load_seq2seq(config.model, cache_dir=config.cache_dir)
        fit_vocabulary(model, tokenizer)
    check_ids(tokenizer, model)
    return _prepared(model, config)


def _prepared(model: Any, config: Translate) -> Any:
    if config.gradient_checkpointing:
        compute_twice(model)
    return model.train()


def _planned_steps(config: Translate, counts: Callable[[int], Iterable[int]]) -> int | None:
    """Total steps; None if only time ends the training."""
    planned = [] if config.max_steps is None else [config.max_steps]
    if config.epochs is not None:
        planned.append(sum(steps_of(batches, config.accumulation, 1) for batches in counts(config.epochs)))
    return min(planned, default=None)
