"""Batches to measure activations on: from texts, from token ids, or random ones."""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stayfinite.errors import UsageError
from stayfinite.precision.surgery.keeping import keep_in_range
from stayfinite.precision.surgery.rescaling import differences, outputs, rescale
from stayfinite.precision.surgery.result import RECORD, Rescaled, Trial, matching_groups
from stayfinite.state.parts import evaluating

SEARCH = 60
"""Skipped steps after which there is no loss scale: from 2**16 it is then below what a float of 32 bits holds well."""


def train_a_little(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    *,
    steps: int,
    precision: Literal["fp16", "fp32"],
    exponents: Mapping[str, int],
    network: str,
    lr: float = 1e-4,
    keep: bool = False,
) -> Trial:
    """Train a copy of the model, without dropout; the model itself is not touched.

    Arguments:
        steps: updates of the weights; what the scaler skips for its scale comes on top.
        exponents: of the parameters that were rescaled; none for the original.
        lr: the original's, for AdamW; the rescaled network gets groups that match it.
        keep: with :func:`keep_in_range`.
    """
    model = copy.deepcopy(model)
    device = next(model.parameters()).device.type
    optimizer = torch.optim.AdamW(matching_groups(model, exponents, lr=lr), lr=lr)
    kept = keep_in_range(model) if keep else None
    half = precision == "fp16"
    scaler = torch.amp.GradScaler(device, enabled=half)
    overflows = skipped = taken = 0
    last_skip: int | None = None
    losses: list[float] = []
    with evaluating(model):
        while taken + overflows < steps and skipped < SEARCH:
            with torch.amp.autocast(device, dtype=torch.float16, enabled=half):
                loss = model(**batches[(taken + overflows) % len(batches)]).loss
            value = float(loss.detach())
            scale = scaler.get_scale()
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if not math.isfinite(value):
                overflows += 1
            elif half and scaler.get_scale() < scale:
                last_skip = taken + overflows
                skipped += 1  # the same batch comes again, at a lower scale
            else:
                taken += 1
                losses.append(value)
    return Trial(
        network=network,
        precision=precision,
        steps=taken,
        overflows=overflows,
        skipped=skipped,
        first_loss=losses[0] if losses else None,
        last_loss=_end(losses, len(batches)) if taken == steps else None,
        scale=scaler.get_scale() if half else None,
        last_skip=last_skip,
        scaled=len(kept.scaled) if kept else 0,
    )


def _end(losses: list[float], batches: int) -> float | None:
    """The mean over the last round of batches, so that no single one decides."""
    last = losses[-batches:]
    return sum(last) / len(last) if last else None


Row = tuple[list[int], list[int]]
"""Source and target; the target of a language model is its source."""


def random_batches(config: Any, *, count: int, rows: int, length: int) -> list[dict[str, Tensor]]:
    """Uniformly random tokens, the same ones each time."""
    vocabulary = int(config.get_text_config().vocab_size)
    generator = torch.Generator().manual_seed(0)
    least = min(10, vocabulary // 2)  # special tokens come first in most vocabularies
    batches = []
    for _ in range(count):
        source, target = torch.randint(least, vocabulary, (2, rows, length), generator=generator)
        batches.append({"input_ids": source, "labels": target if config.is_encoder_decoder else source})
    return batches


def batches_from(
    path: Path, tokenizer: Any, config: Any, *, count: int, rows: int, length: int
) -> list[dict[str, Tensor]]:
    """From a file: lines of text (source, tab, target for encoder-decoders), or JSON lines with `input_ids` or `text`.

    Raises:
        UsageError: nothing in it can be used.
    """
    seq2seq = bool(config.is_encoder_decoder)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][: count * rows]
    read = (_row(line, path, tokenizer, seq2seq=seq2seq, length=length) for line in lines)
    found = [row for row in read if row[0] and row[1]]
    if not found:
        raise UsageError(f"no rows in {path}", fix="one text per line, or JSON lines with input_ids")
    filler = config.pad_token_id if config.pad_token_id is not None else 0
    return [_batch(found[start : start + rows], int(filler), seq2seq=seq2seq) for start in range(0, len(found), rows)]


def _row(line: str, path: Path, tokenizer: Any, *, seq2seq: bool, length: int) -> Row:
    record = json.loads(line) if path.suffix in (".jsonl", ".ndjson") else line
    if isinstance(record, dict) and "input_ids" in record:
        source = [int(token) for token in record["input_ids"]][:length]
        return source, [int(token) for token in record.get("labels", source)][:length]
    text = str(record.get("text", "")) if isinstance(record, dict) else line
    if tokenizer is None:
        raise UsageError(f"{path} is text, but the model has no tokenizer", fix="JSON lines with input_ids")
    if seq2seq and "\t" not in text:  # plain text: the first half asks for the second
        words = text.split()
        text = " ".join(words[: len(words) // 2]) + "\t" + " ".join(words[len(words) // 2 :])
    sides = text.split("\t")[:2] if seq2seq else [text, text]
    one, other = (list(tokenizer(each, truncation=True, max_length=length)["input_ids"]) for each in sides)
    return one, other


def _batch(rows: Sequence[Row], filler: int, *, seq2seq: bool) -> dict[str, Tensor]:
    sources = _padded([source for source, _ in rows], filler)
    mask = _padded([[1] * len(source) for source, _ in rows], 0)
    labels = _padded([target if seq2seq else source for source, target in rows], -100)
    return {"input_ids": sources, "attention_mask": mask, "labels": labels}


def _padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (width - len(row))] for row in rows])


def rescale_directory(
    source: str,
    out: Path | None,
    *,
    data: Path | None = None,
    share: float,
    tolerance: float,
    steps: int,
    rows: int,
    length: int,
    count: int,
) -> Rescaled:
    """Rescale a saved model, prove it, write it. Nothing is written where nothing had to be changed.

    Raises:
        UsageError: the model cannot be loaded, or the output directory is not empty.
    """
    if out is not None and out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty", fix="name a new directory: -o OUT")
    model, tokenizer = _load(source)
    if data is None:
        batches = random_batches(model.config, count=count, rows=rows, length=length)
        words = f"{count} batches of random tokens, {rows} x {length}"
    else:
        batches = batches_from(data, tokenizer, model.config, count=count, rows=rows, length=length)
        words = f"{sum(len(batch['input_ids']) for batch in batches)} rows of {data.name}"

    def trained(network: str, precision: Literal["fp16", "fp32"], exponents: Mapping[str, int]) -> list[Trial]:
        if not steps:
            return []
        return [train_a_little(model, batches, steps=steps, precision=precision, exponents=exponents, network=network)]

    trials = trained("original", "fp32", {}) + trained("original", "fp16", {})
    reference = outputs(model, batches, lambda batch: model(**batch))
    result = rescale(model, batches, share=share, tolerance=tolerance)
    result.data = words
    result.trials = trials + (trained("rescaled", "fp16", result.parameters) if result.changes else [])
    if out is not None and result.changes:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as aside:
            whole = Path(aside) / out.name
            _write(model, tokenizer, source, whole, result)
            loaded = type(model).from_pretrained(whole, dtype=torch.float32)
            logits, loss = differences(reference, outputs(loaded, batches, lambda batch: loaded(**batch)))
            if not (logits <= tolerance and loss <= tolerance):
                raise UsageError(
                    f"the saved model gives other logits when loaded (off by {logits:.1e}); nothing written",
                    fix="this version of transformers changes weights or config when it loads the model",
                )
            whole.replace(out)
    return result


def _load(source: str) -> tuple[Any, Any]:
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(source)
        names = config.architectures or []
        kind = getattr(transformers, names[0], None) if names else None
        if kind is None:
            kind = (
                transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
            )
        model = kind.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot load {source}: {str(error).splitlines()[0]}", fix="a directory with config.json and weights"
        ) from error
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, TypeError, AttributeError, ImportError, KeyError):
        tokenizer = None  # many a checkpoint has none beside it
    return model, tokenizer


def _write(model: Any, tokenizer: Any, source: str, out: Path, result: Rescaled) -> None:
    model.save_pretrained(out)
    if tokenizer is not None and Path(source).is_dir():
        tokenizer.save_pretrained(out)
    record = json.dumps(result.to_json(), indent=1, allow_nan=False)
    (out / RECORD).write_text(record + "\n", encoding="utf-8")
