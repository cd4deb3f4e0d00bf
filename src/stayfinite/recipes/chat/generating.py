"""Answers from a model: batched by length, in the order in which they were asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from stayfinite.recipes.chat.packing import is_packable, within_window
from stayfinite.recipes.chat.prompts import Prompting
from stayfinite.recipes.running.portions import in_portions

WORTH = 8
"""Tokens at the beginning of every question that are worth computing by themselves, once for all."""


def generate(model: Any, prompting: Prompting, questions: Sequence[str], **options: Any) -> list[str]:
    """What the model says to each question as text; the options are those of :func:`generate_tokens`."""
    said = generate_tokens(model, prompting, questions, **options)
    return [str(text) for text in prompting.tokenizer.batch_decode(said, skip_special_tokens=True)]


def generate_tokens(
    model: Any,
    prompting: Prompting,
    questions: Sequence[str],
    *,
    new_tokens: int,
    limit: int | None = None,
    batch_size: int = 64,
    samples: int = 1,
    temperature: float = 0.0,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[int]]:
    """The tokens that the model says to each question, up to the end mark and with it where it was said.

    Of several samples of a question one comes after the other.

    Arguments:
        new_tokens: that an answer may have.
        limit: tokens that a question with its frame may have; a longer one is cut. What is said comes on top, so that
            room for a long answer never costs the question.
        temperature: 0 takes the likeliest token; above it, tokens are drawn from torch's generators.
        progress: is told how many questions are done, of how many.
    """
    device = next(model.parameters()).device
    training, cached = model.training, model.config.use_cache
    # Gradient checkpointing switches the cache off; generating without it is quadratic.
    model.eval()
    model.config.use_cache = True
    room = prompt_room(model, new_tokens, limit)
    rows = [prompting.prompt(question, room) for question in questions]
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    pad = int(prompting.tokenizer.pad_token_id)
    options: dict[str, Any] = {"max_new_tokens": new_tokens, "pad_token_id": pad, "eos_token_id": prompting.end}
    options |= (
        {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
        if temperature
        else {"do_sample": False}
    )
    options |= {"num_return_sequences": samples} if samples > 1 else {}
    written: list[list[list[int]]] = [[] for _ in rows]
    shared = _shared(model, rows, new_tokens) if device.type == "cpu" else 0
    with torch.inference_mode(), autocast():
        begun = _read(model, rows[0][:shared]) if shared else None

    def write(chosen: Sequence[int]) -> None:
        width = max(len(rows[row]) for row in chosen)
        # Padded before its own words: what is generated has to follow the question at once.
        gaps = [width - len(rows[row]) for row in chosen]
        parts = [(rows[row][:shared], gap, rows[row][shared:]) for row, gap in zip(chosen, gaps, strict=True)]
        ids = torch.tensor([[*first, *[pad] * gap, *own] for first, gap, own in parts], device=device)
        mask = torch.tensor([[1] * shared + [0] * gap + [1] * len(own) for _, gap, own in parts], device=device)
        with torch.inference_mode(), autocast():
            known = {} if begun is None else {"past_key_values": _repeated(begun, len(chosen) * samples)}
            output = model.generate(input_ids=ids, attention_mask=mask, use_cache=True, **known, **options)
        said = [_up_to(row, prompting.end) for row in output[:, width:].tolist()]
        for position, row in enumerate(chosen):
            written[row] = said[position * samples : (position + 1) * samples]

    try:
        in_portions(order, batch_size, write, progress)
    finally:
        model.train(training)
        model.config.use_cache = cached
    return [row for rows_of_one in written for row in rows_of_one]


def _shared(model: Any, rows: Sequence[list[int]], new_tokens: int) -> int:
    """Tokens that all rows begin with, where computing them once is worth it and changes nothing."""
    if len(rows) < 2 or not is_packable(model):
        return 0
    places = min(map(len, rows)) - 1  # the last token of a question is its own: it predicts
    shared = next((place for place in range(places) if len({row[place] for row in rows}) > 1), places)
    return shared if shared >= WORTH and within_window(model.config, max(map(len, rows)) + new_tokens) else 0


def _read(model: Any, beginning: list[int]) -> Any:
    """What the model keeps of these tokens."""
    ids = torch.tensor([beginning], device=next(model.parameters()).device)
    return model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values


def _repeated(cache: Any, count: int) -> Any:
    """The same for so many rows; generating goes on writing into it."""
    many = copy.deepcopy(cache)
    many.batch_repeat_interleave(count)
    return many


def _up_to(row: list[int], end: int) -> list[int]:
    """A row up to its first end mark; what comes after it is padding."""
    return row[: row.index(end) + 1] if end in row else row


def prompt_room(model: Any, new_tokens: int, limit: int | None) -> int | None:
    """Tokens that a question may have: as in training, and so that there are places left for what is said."""
    places = getattr(model.config, "max_position_embeddings", None)
    bounds = [limit, None if places is None else int(places) - new_tokens]
    return min((bound for bound in bounds if bound is not None), default=None)
