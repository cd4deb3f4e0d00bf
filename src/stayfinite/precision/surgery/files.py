"""A model directory of transformers in, one out: nothing of ours is needed to load it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from stayfinite.errors import UsageError
from stayfinite.precision.surgery.batches import batches_from, random_batches
from stayfinite.precision.surgery.groups import RECORD
from stayfinite.precision.surgery.rescaling import differences, outputs, rescale
from stayfinite.precision.surgery.result import Rescaled
from stayfinite.precision.surgery.trials import train_a_little


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
    before = [] if steps == 0 else _trials(model, batches, {}, "original", steps, ("fp32", "fp16"))
    reference = outputs(model, batches, lambda batch: model(**batch))
    result = rescale(model, batches, share=share, tolerance=tolerance)
    result.data = words
    if not result.changes:
        result.trials = before
        return result
    if steps:
        result.trials = [*before, *_trials(model, batches, result.parameters, "rescaled", steps, ("fp16",))]
    if out is not None:
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


def _trials(
    model: Any, batches: Sequence[Any], exponents: Any, network: str, steps: int, precisions: Sequence[Any]
) -> list[Any]:
    return [
        train_a_little(model, batches, steps=steps, precision=each, exponents=exponents, network=network)
        for each in precisions
    ]


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
