"""``stayfinite train translate``: train a T5 or ByT5 to translate, from pairs of texts.

    stayfinite train translate                                     # the built-in task: two minutes on two CPU cores
    stayfinite train translate --train pairs.csv --model google/byt5-small --output-dir runs/first
    stayfinite train translate --train train.src train.tgt --val valid.src valid.tgt --model medium --batch-tokens 16000

The program reads top to bottom: settings, data, tokenizer, model, check, loop, result.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stayfinite.core.policy import Policy
from stayfinite.guard.guard import Guard
from stayfinite.recipes.running.accumulating import grouped
from stayfinite.recipes.running.best import Best
from stayfinite.recipes.running.logbook import Logbook
from stayfinite.recipes.running.optimizing import optimizer_for, schedule_for, steps_of
from stayfinite.recipes.running.place import choose_device, choose_precision
from stayfinite.recipes.seq2seq.batching import IGNORED, Example, Padding, loader_of, tokens_in
from stayfinite.recipes.seq2seq.built_in import Pair, store_records
from stayfinite.recipes.seq2seq.generating import generate
from stayfinite.recipes.seq2seq.models import build_t5, fit_vocabulary, is_size, load_seq2seq, load_weights
from stayfinite.recipes.seq2seq.normalising import Form, normaliser, self_test
from stayfinite.recipes.seq2seq.pairs import Columns, clean, read_pairs, split
from stayfinite.recipes.seq2seq.scores import Scores, score
from stayfinite.recipes.seq2seq.tokenizers import check_ids, load_tokenizer, train_sentencepiece
from stayfinite.recipes.settings import read_settings


@dataclass(frozen=True, kw_only=True)
class Translate:
    """Train a T5 or ByT5 to translate, from pairs of texts. Without --train: a built-in task, a small model."""

    # -- data
    train: tuple[str, ...] = ()
    """CSV, TSV, JSONL or Parquet files with source and target columns, or two aligned text files, source first."""
    val: tuple[str, ...] = ()
    """The same for validation; a share of the training pairs is kept back when left out."""
    source: str | None = None
    """Name of the source column; guessed when left out."""
    target: str | None = None
    """Name of the target column; guessed when left out."""
    group: str | None = None
    """Name of a column with a group (a document, a tablet): a group is never on both sides of the split."""
    val_share: float = 0.1
    """Share of the pairs, by group, that is kept back for validation when --val is not given."""
    normalise: tuple[Form, ...] = ("nfc", "spaces")
    """How sources are brought into one spelling, in training and in use alike."""
    prefix: str = ""
    """Put before every source: `translate Akkadian to English: `."""
    max_ratio: float = 8.0
    """Pairs of which one side is so many times longer than the other are left out."""
    max_source_length: int = 256
    """Tokens (bytes for ByT5) at which a source is cut."""
    max_target_length: int = 256
    """Tokens (bytes for ByT5) at which a target is cut."""

    # -- model
    model: str = "tiny"
    """A size that is built here (tiny, small, medium, large), a directory, or a hub's name."""
    tokenizer: str | None = None
    """A directory, a hub's name, or `bytes`; by default the model's own, or one that is trained on the data."""
    vocab_size: int = 8000
    """Pieces of a tokenizer that is trained here."""
    dropout: float = 0.1
    """Dropout of a model that is built here."""
    cache_dir: str | None = None
    """Where models from a hub are kept."""
    output_dir: str = "runs/translate"
    """Where everything goes: the run, its checkpoints, the best model, the result."""

    # -- training
    epochs: int = 10
    """Passes over the training pairs."""
    minutes: float | None = None
    """Stop after so many minutes of training, whatever the epoch."""
    batch_size: int = 4
    """Pairs in a batch."""
    batch_tokens: int | None = None
    """Instead of --batch-size: at most so many tokens in a batch, padding included."""
    accumulation: int = 4
    """Batches in a step."""
    learning_rate: float = 1e-4
    """The highest learning rate."""
    schedule: Literal["linear", "cosine", "inverse_sqrt", "constant"] = "linear"
    """How the learning rate goes down after the warmup."""
    warmup_ratio: float = 0.1
    """Share of the steps during which the learning rate rises."""
    weight_decay: float = 0.01
    """Decay of weight matrices; norms and biases are left alone."""
    label_smoothing: float = 0.0
    """Share of the probability that is spread over all tokens."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm."""
    ema: float = 0.0
    """Average the weights with this decay (0.999) and evaluate the average; 0 for none."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """What the model computes in; auto asks the card, and takes fp16 only where it is proved to hold."""
    gradient_checkpointing: bool = True
    """Compute activations twice instead of keeping them."""
    length_buckets: bool = True
    """Put pairs of like length into a batch."""
    seed: int = 0
    """For weights, order and dropout."""
    device: str = "auto"
    """cpu, cuda, or the best there is."""

    # -- looking on
    check: bool = True
    """Look at model and data before the first step, and stop when it cannot work."""
    eval_epochs: int = 1
    """Epochs between evaluations."""
    eval_rows: int = 500
    """Validation pairs that are translated at an evaluation; the last one takes all."""
    metric: Literal["bleu", "chrf", "mean"] = "mean"
    """What decides which model is the best."""
    patience: int = 0
    """Stop after so many evaluations without a better one; 0 to go on."""
    beams: int = 4
    """Beams of the last evaluation; those before it are greedy."""
    samples: int = 3
    """Translations that are shown at an evaluation."""
    logging_steps: int = 50
    """Steps between lines."""
    checkpoint_steps: int | None = None
    """Steps between checkpoints; by default one an epoch."""
    keep_checkpoints: int = 2
    """Good checkpoints that are kept."""


BUILT_IN = {
    "learning_rate": 3e-3, "batch_size": 64, "accumulation": 1, "gradient_checkpointing": False, "epochs": 16,
    "vocab_size": 512, "max_source_length": 64, "max_target_length": 64, "dropout": 0.0, "eval_epochs": 4,
    "label_smoothing": 0.0,
}  # fmt: skip
"""Settings that the built-in task has where nothing else was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a training came to."""

    scores: Scores
    first_loss: float
    last_loss: float
    steps: int
    seconds: float
    directory: Path


def train(config: Translate, say: Callable[[str], None] = print) -> Result:
    """Train, evaluate, keep the best model."""
    config = _settled(config)
    output = Path(config.output_dir)
    torch.manual_seed(config.seed)
    device = choose_device(config.device)

    # -- data --------------------------------------------------------------------------------------------------------
    training, validation = _data(config, say)

    # -- tokenizer and model -----------------------------------------------------------------------------------------
    tokenizer = _tokenizer(config, training, output / "tokenizer")
    model = _model(config, tokenizer).to(device)
    encode = _encoder(config, tokenizer)
    examples = encode(training, say)
    compute_loss = _loss_of(model, config.label_smoothing, device)

    # -- batches, optimizer, schedule --------------------------------------------------------------------------------
    loader = loader_of(
        examples, Padding(pad=tokenizer.pad_token_id), batch_size=config.batch_size, tokens=config.batch_tokens,
        buckets=config.length_buckets, pin=device.type == "cuda",
    )  # fmt: skip
    optimizer = optimizer_for(model, lr=config.learning_rate, weight_decay=config.weight_decay, device=device)
    steps = steps_of(len(loader), config.accumulation, config.epochs)
    scheduler = schedule_for(optimizer, config.schedule, warmup=int(config.warmup_ratio * steps), steps=steps)
    precision = choose_precision(config.precision, device, say)
    average = _average(model, config.ema)
    logbook = Logbook(say, steps=steps, every=config.logging_steps)
    best = Best(output, metric=config.metric, patience=config.patience)
    policy = Policy(
        precision=precision,
        checkpoint_steps=config.checkpoint_steps or steps_of(len(loader), config.accumulation, 1),
        keep_checkpoints=config.keep_checkpoints,
    )
    _write_launch(output, config)

    # -- the loop ----------------------------------------------------------------------------------------------------
    start = time.monotonic()
    with Guard(
        model, optimizer, scheduler, max_norm=config.max_grad_norm, policy=policy, run_dir=output,
        forward=compute_loss, ema=average,
    ) as guard:  # fmt: skip
        resumed = guard.resume()
        if resumed:
            say(f"resumed after step {resumed}")
            best.recall()
        judged = average.module if average is not None else model
        for epoch in range(config.epochs):
            trained = 0
            for group in grouped(guard.batches(loader), config.accumulation):
                for batch in group:
                    loss = guard.forward(batch)
                    guard.backward(loss / len(group))
                    logbook.add(loss, tokens_in(batch))
                guard.step()
                trained += 1
                if average is not None:
                    average.update_parameters(model)
                logbook.step(scheduler.get_last_lr()[0])
                if config.minutes is not None and time.monotonic() - start > 60 * config.minutes:
                    break
            last = epoch + 1 == config.epochs or (
                config.minutes is not None and time.monotonic() - start > 60 * config.minutes
            )
            if trained and ((epoch + 1) % config.eval_epochs == 0 or last):
                scores = _evaluate(judged, tokenizer, config, validation[: config.eval_rows], guard.autocast, say)
                better = best.judge(
                    logbook.steps_taken, scores.to_json(), lambda into: _save(judged, tokenizer, config, into)
                )
                say(f"epoch {epoch + 1}: {scores}{'  (best so far)' if better else ''}")
            if last or best.over:
                break
        # -- result --------------------------------------------------------------------------------------------------
        load_weights(judged, best.directory)
        scores = _evaluate(judged, tokenizer, config, validation, guard.autocast, say, beams=config.beams)
    result = Result(
        scores=scores, first_loss=logbook.first, last_loss=logbook.last, steps=logbook.steps_taken,
        seconds=time.monotonic() - start, directory=output,
    )  # fmt: skip
    _write_result(output, result, best, logbook)
    say(f"{scores}. The best model is in {output / 'best'}.")
    return result


def main(arguments: Sequence[str]) -> None:
    """Run the program with these flags."""
    train(read_settings(Translate, arguments, "stayfinite train translate"))


# -- the parts, in the order in which they are used ------------------------------------------------------------------


def _settled(config: Translate) -> Translate:
    """The settings with those of the built-in task, where it is what is trained on and nothing else was asked for."""
    if config.train:
        return config
    unasked = {f.name for f in fields(config) if getattr(config, f.name) == f.default}
    return replace(config, **{name: value for name, value in BUILT_IN.items() if name in unasked})  # type: ignore[arg-type]


def _data(config: Translate, say: Callable[[str], None]) -> tuple[list[Pair], list[Pair]]:
    wrong = self_test(config.normalise)
    if wrong:
        raise AssertionError("; ".join(wrong))
    normalise = normaliser(config.normalise)
    columns = Columns(source=config.source, target=config.target, group=config.group)
    pairs = read_pairs(config.train, columns) if config.train else store_records(6000)
    kept = clean(pairs, normalise, max_ratio=config.max_ratio)
    if config.val:
        validation = clean(read_pairs(config.val, columns), normalise, max_ratio=math.inf).pairs
        training = kept.pairs
    else:
        training, validation = split(kept.pairs, config.val_share)
    say(f"training on {kept}; validation {len(validation):,}")
    return training, validation


def _tokenizer(config: Translate, training: Sequence[Pair], directory: Path) -> Any:
    if config.tokenizer is not None:
        return load_tokenizer(config.tokenizer)
    if not is_size(config.model):
        return load_tokenizer(config.model)
    if (directory / "spiece.model").exists():  # a run that is resumed keeps its vocabulary
        return load_tokenizer(str(directory))
    texts = [text for pair in training for text in (config.prefix + pair.source, pair.target)]
    return train_sentencepiece(texts, directory, config.vocab_size, seed=config.seed)


def _model(config: Translate, tokenizer: Any) -> Any:
    if is_size(config.model):
        model = build_t5(config.model, tokenizer, dropout=config.dropout)
    else:
        model = load_seq2seq(config.model, cache_dir=config.cache_dir)
        fit_vocabulary(model, tokenizer)
    check_ids(tokenizer, model)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.config.use_cache = False
    return model.train()


def _encoder(config: Translate, tokenizer: Any) -> Callable[..., list[Example]]:
    def encode(pairs: Sequence[Pair], say: Callable[[str], None]) -> list[Example]:
        sources = tokenizer([config.prefix + pair.source for pair in pairs]).input_ids
        targets = tokenizer([pair.target for pair in pairs]).input_ids
        limits = config.max_source_length, config.max_target_length
        cut = [
            sum(len(row) > limit for row in side) / len(side)
            for side, limit in zip((sources, targets), limits, strict=True)
        ]
        warning = "  <- much is lost: raise the limits" if max(cut) > 0.05 else ""
        say(
            f"lengths are cut at {limits[0]} and {limits[1]} tokens: {cut[0]:.1%} of the sources, "
            f"{cut[1]:.1%} of the targets{warning}"
        )
        end = tokenizer.eos_token_id
        return [
            Example(_cut(source, limits[0], end), _cut(target, limits[1], end))
            for source, target in zip(sources, targets, strict=True)
        ]

    return encode


def _cut(row: list[int], limit: int, end: int) -> list[int]:
    """The row within its limit, with the end mark in its place."""
    return row if len(row) <= limit else [*row[: limit - 1], end]


def _loss_of(model: Any, smoothing: float, device: torch.device) -> Callable[[dict[str, Tensor]], Tensor]:
    def compute_loss(batch: dict[str, Tensor]) -> Tensor:
        batch = {name: item.to(device, non_blocking=True) for name, item in batch.items()}
        logits = model(**batch).logits  # (B, T, V)
        return F.cross_entropy(
            logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=IGNORED, label_smoothing=smoothing
        )

    return compute_loss


def _average(model: Any, decay: float) -> Any:
    if not decay:
        return None
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))


def _evaluate(
    model: Any, tokenizer: Any, config: Translate, pairs: Sequence[Pair], autocast: Any, say: Callable[[str], None],
    beams: int = 1,
) -> Scores:  # fmt: skip
    translations = generate(
        model, tokenizer, [config.prefix + pair.source for pair in pairs], max_source=config.max_source_length,
        batch_size=256 if beams == 1 else 128, autocast=autocast, num_beams=beams, do_sample=False,
        max_new_tokens=config.max_target_length,
    )  # fmt: skip
    for pair, translation in list(zip(pairs, translations, strict=True))[: config.samples]:
        say(
            f"  {pair.source[:100]}\n    is  {translation[:100]}\n    not {pair.target[:100]}"
            if translation != pair.target
            else f"  {pair.source[:100]}\n    is  {translation[:100]}"
        )
    return score(translations, [pair.target for pair in pairs])


def _save(model: Any, tokenizer: Any, config: Translate, into: Path) -> None:
    model.save_pretrained(into)
    tokenizer.save_pretrained(into)
    (into / "translate.json").write_text(json.dumps(asdict(config), indent=1), encoding="utf-8")


def _write_launch(output: Path, config: Translate) -> None:
    output.mkdir(parents=True, exist_ok=True)
    path = output / "run.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"version": 1, "launches": []}
    path.write_text(json.dumps(known | {"recipe": "translate", "config": asdict(config)}, indent=1), encoding="utf-8")


def _write_result(output: Path, result: Result, best: Best, logbook: Logbook) -> None:
    record = {
        "version": 1, "scores": asdict(result.scores) | {"mean": result.scores.mean}, "steps": result.steps,
        "seconds": round(result.seconds, 1), "first_loss": result.first_loss, "last_loss": result.last_loss,
        "tokens_per_second": round(logbook.rate), "evaluations": best.history,
    }  # fmt: skip
    (output / "result.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
