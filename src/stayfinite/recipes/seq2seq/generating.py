"""Generate texts in batches of similar length, by beam search or sampling, in input order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from stayfinite.recipes.running.portions import in_portions


def generate(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    max_source: int,
    batch_size: int = 32,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> list[str]:
    """One text per input, or ``num_return_sequences`` consecutive ones.

    Arguments:
        max_source: tokens at which an input is truncated.
        options: for transformers' ``generate``: ``num_beams``, ``max_new_tokens``, ...
    """
    device = next(model.parameters()).device
    training, cached = model.training, model.config.use_cache
    # Gradient checkpointing disables the cache, without which generation is quadratic.
    model.eval()
    model.config.use_cache = True
    each = int(options.get("num_return_sequences", 1))
    rows = tokenizer(list(texts), truncation=True, max_length=max_source).input_ids if texts else []
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    written: list[list[str]] = [[] for _ in rows]

    def write(chosen: Sequence[int]) -> None:
        batch = tokenizer.pad({"input_ids": [rows[row] for row in chosen]}, return_tensors="pt").to(device)
        with torch.inference_mode(), autocast():
            output = model.generate(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=True, **options
            )
        decoded = tokenizer.batch_decode(output, skip_special_tokens=True)
        for position, row in enumerate(chosen):
            written[row] = [text.strip() for text in decoded[position * each : (position + 1) * each]]

    try:
        in_portions(order, batch_size, write, progress)
    finally:
        model.train(training)
        model.config.use_cache = cached
    return [text for found in written for text in found]
