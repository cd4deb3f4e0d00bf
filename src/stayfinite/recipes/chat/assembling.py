"""Base and adapter of a run, as its settings ask for them."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from stayfinite.core.policy import Precision
from stayfinite.recipes.chat.adapters import attach, load_adapter, prepare_quantised, spare_memory
from stayfinite.recipes.chat.bases import Base, build_base, is_size, load_base, train_tokenizer
from stayfinite.recipes.chat.data import task_of
from stayfinite.recipes.chat.prompts import Example
from stayfinite.recipes.chat.questions import Question
from stayfinite.recipes.running.directories import write_whole
from stayfinite.recipes.running.processes import Place

KEPT_BYTES = 160
"""Bytes of activations for each token, layer and hidden unit, about: some forty numbers in fp32."""
KEPT = "base"
"""Where a run keeps a base that was built for it."""


def base_of(
    config: Any, place: Place, questions: Sequence[Question], say: Callable[[str], None] = lambda _: None
) -> Base:
    """The base of a run: loaded, or built once, kept in the run's directory, and loaded from there ever after."""
    if not is_size(config.model):
        return load_base(config.model, bits=config.bits, cache_dir=config.cache_dir, say=say)
    kept = Path(config.output_dir) / KEPT
    if place.first and not (kept / "config.json").is_file():
        tokenizer = train_tokenizer(text for question in questions for text in (question.text, question.answer))
        write_whole(kept, build_base(config.model, tokenizer).save)
    place.wait()
    # The same way in every process and at every launch, so that nothing depends on who built it.
    return load_base(str(kept), bits=config.bits)


def name_of_base(config: Any) -> str:
    """How an adapter names its base: as it was asked for, or by the way from ``best/`` to where the run keeps it."""
    return f"../{KEPT}" if is_size(config.model) else str(config.model)


def record_of(config: Any, base: str, mark: str, new_tokens: int) -> dict[str, Any]:
    """What is saved with an adapter, for its use.

    Arguments:
        base: its name, as seen from the adapter.
        mark: fingerprint of the base.
        new_tokens: most tokens of an answer.
    """
    return {
        "base": {"model": base, "fingerprint": mark, "bits": config.bits}, "system": config.system,
        "max_length": config.max_length, "task": None if config.train else task_of(config), "new_tokens": new_tokens,
        "seed": config.seed,
    }  # fmt: skip


def adapted(config: Any, base: Base, device: torch.device, precision: Precision, *, longest: int | None = None) -> Any:
    """The base with the adapter that is to be trained.

    Arguments:
        longest: tokens of the longest row; by default as many as a row may have.
    """
    model = base.model
    if config.bits != "full":
        model = prepare_quantised(model)
    elif config.base_dtype == "bf16" or (config.base_dtype == "auto" and precision == "bf16"):
        model = model.to(torch.bfloat16)
    if config.adapter is not None:
        model = load_adapter(model, config.adapter, trainable=True)
    else:
        torch.manual_seed(config.seed)  # the same adapter, whether the base was built or loaded
        untrained = is_size(config.model)
        model = attach(model, rank=config.rank, alpha=config.alpha, dropout=config.dropout, head=untrained)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()  # what learns is in full precision, whatever the base is in
    if _computes_twice(config, model, device, config.max_length if longest is None else longest):
        spare_memory(model)
    return (model if config.bits != "full" else model.to(device)).train()


def _computes_twice(config: Any, model: Any, device: torch.device, longest: int) -> bool:
    """Whether activations are computed twice: where it is asked for, and not on a CPU with room for them."""
    if not config.gradient_checkpointing or device.type != "cpu":
        return bool(config.gradient_checkpointing)
    shape = model.config.get_text_config()
    tokens = config.batch_size * longest
    kept: int = KEPT_BYTES * tokens * int(shape.num_hidden_layers) * int(shape.hidden_size)
    return kept > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 4


def size_in_words(model: Any, examples: Sequence[Example]) -> str:
    """What is trained, and on how much."""
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
    tokens, learned = sum(row.length for row in examples), sum(len(row.completion) for row in examples)
    return (
        f"training {trained:,} parameters, {trained / (trained + frozen):.2%} of {trained + frozen:,}; {learned:,} "
        f"of {tokens:,} tokens supervised ({learned / tokens:.1%})"
    )
