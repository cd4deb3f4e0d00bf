"""Fill gaps with a model's output (`<extra_id_0> two words <extra_id_1> ...`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from stayfinite.recipes.language.masking import Masking, SpanCorruption
from stayfinite.recipes.seq2seq.batching import Example, Padding


def spans_of(written: Iterable[int], sentinels: Sequence[int], ends: Iterable[int]) -> dict[int, list[int]]:
    """Tokens written for each sentinel; those before the first sentinel count for it.

    Arguments:
        ends: ids that end the text, including padding.
    """
    marks, over = set(sentinels), set(ends)
    spans: dict[int, list[int]] = {}
    current = spans.setdefault(sentinels[0], []) if sentinels else []
    for place, token in enumerate(written):
        if token in over:
            if place == 0:
                continue  # a decoder starts with padding
            break
        if token in marks:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    return spans


def fill_in(
    model: Any,
    tokenizer: Any,
    masking: Masking,
    examples: Sequence[Example],
    autocast: Callable[[], AbstractContextManager[Any]],
    longest: int = 64,
) -> list[str]:
    """A model's output for a few examples, one line each: `The [old] road to [Velmar, not Dunholt]`."""
    if not examples:
        return []
    training = model.training
    batch = Padding(pad=tokenizer.pad_token_id)(examples)
    device = next(model.parameters()).device
    most = min(longest, max(len(example.target) for example in examples) + 8)
    model.eval()
    try:
        with torch.inference_mode(), autocast():
            written = model.generate(
                input_ids=batch["input_ids"].to(device), attention_mask=batch["attention_mask"].to(device),
                max_new_tokens=most, do_sample=False, num_beams=1, use_cache=True,
            ).tolist()  # fmt: skip
    finally:
        model.train(training)
    return [_shown(tokenizer, masking, *both) for both in zip(examples, written, strict=True)]


def _shown(tokenizer: Any, masking: Masking, example: Example, written: list[int]) -> str:
    def words(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    if not isinstance(masking, SpanCorruption):
        said, wanted = words(written), words(example.target)
        return f"{words(example.source)} [{said if said == wanted else f'{said}, not {wanted}'}]"
    ends = (masking.end, tokenizer.pad_token_id)
    guessed = spans_of(written, masking.sentinels, ends)
    meant = spans_of(example.target, masking.sentinels, ends)
    marks = set(masking.sentinels)
    parts: list[str] = []
    run: list[int] = []
    for token in example.source:
        if token not in marks:
            run.append(token)
            continue
        said, wanted = words(guessed.get(token, [])), words(meant.get(token, []))
        parts += [words(run), f"[{said if said == wanted else f'{said}, not {wanted}'}]"]
        run = []
    return " ".join(part for part in [*parts, words(run)] if part)
