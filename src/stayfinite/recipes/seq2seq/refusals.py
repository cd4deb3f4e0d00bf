"""Reject impossible settings before anything is read or written."""

from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.running.directories import require_room
from stayfinite.recipes.running.place import is_planned
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.running.sharding import refuse_unshardable
from stayfinite.recipes.running.timing import refuse_untimed
from stayfinite.recipes.seq2seq.models import SIZES, is_size
from stayfinite.recipes.settings import require, require_usual


def refuse_impossible(config: Any) -> None:
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


def _refuse_deeper_decoder(config: Any) -> None:
    """transformers sizes a T5's cache by its encoder, so generation would fail after the training."""
    usual = SIZES[config.model]["num_layers"]
    encoder, decoder = config.encoder_layers or usual, config.decoder_layers or usual
    if decoder > encoder:
        raise UsageError(
            f"{decoder} decoder layers but {encoder} encoder layers: transformers cannot generate with a T5 whose "
            "decoder is deeper than its encoder",
            fix=f"--decoder-layers {encoder}, or --encoder-layers {decoder}",
        )


def refuse_recorded_stream(config: Any) -> None:
    """Raise UsageError for settings that do not work with a stream.

    Graphs need the lengths of all rows, and a resumed stream cannot sample the same segmentations again.
    """
    if config.segmentations:
        raise UsageError(
            "--segmentations with a stream: a resumed run could not sample the same ones",
            fix="leave out --segmentations, or --stream off",
        )
    if config.graphs:
        raise UsageError(
            "--graphs with a stream: its few forms of batch are chosen from the lengths of all rows",
            fix="leave out --graphs, or --stream off",
        )


def refuse_place(config: Any, place: Place) -> None:
    """Raise UsageError for --graphs without CUDA or with several ranks."""
    if config.graphs and place.device.type != "cuda":
        raise UsageError(f"--graphs needs a CUDA device, not {place.device}", fix="remove --graphs")
    if config.graphs and place.count > 1:
        raise UsageError(
            f"--graphs does not work on {place.count} ranks: a graph does not reduce gradients",
            fix="remove --graphs, or train on one GPU",
        )
