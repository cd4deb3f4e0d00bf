"""Base and adapter of a run, as its settings ask for them, and a quick look at whether they learn at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from stayfinite.core.policy import Precision
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.inspection.inspection import Inspection
from stayfinite.inspection.preflight import inspect_training
from stayfinite.readers.data.opening import open_data
from stayfinite.recipes.chat.adapters import attach, load_adapter, prepare_quantised, spare_memory
from stayfinite.recipes.chat.bases import Base, build_base, is_size, load_base, train_tokenizer
from stayfinite.recipes.chat.batching import Padding
from stayfinite.recipes.chat.data import examples_of, questions_of, task_of
from stayfinite.recipes.chat.losses import loss_of
from stayfinite.recipes.chat.prompts import Example, Prompting
from stayfinite.recipes.chat.questions import Question
from stayfinite.recipes.chat.streaming import streamed_questions
from stayfinite.recipes.running.directories import write_whole
from stayfinite.recipes.running.optimizing import optimizer_for
from stayfinite.recipes.running.place import choose_precision
from stayfinite.recipes.running.planned import before_plan
from stayfinite.recipes.running.processes import Place, place_of_process
from stayfinite.recipes.streaming.choosing import opened, streams

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


ENOUGH = 256
"""Built-in questions that a quick look makes."""


def quick_look(config: Any, steps: int = 10) -> Inspection:
    """Build everything as the training would, and look at one batch and ten steps on it. Nothing is kept.

    Arguments:
        config: the settings; their ``output_dir`` is one that may be thrown away.
    """
    with place_of_process(config.device) as place:
        torch.manual_seed(config.seed)
        files = opened(config.train, open_data)
        if streams(config.stream, files):
            training = streamed_questions(config, files, None, _silent).training
        else:
            training, _ = questions_of(config, _silent)
        training = training[: max(ENOUGH, config.batch_size)]
        precision = choose_precision(
            before_plan(config.precision), place.device, _silent, lambda: "fp16 is for inference only"
        )
        base = base_of(config, place, training)
        prompting = Prompting(tokenizer=base.tokenizer, system=config.system)
        examples = examples_of(config, prompting, training, _silent)
        model = adapted(config, base, place.device, precision)
        optimizer = optimizer_for(model, lr=config.learning_rate, weight_decay=config.weight_decay, device=place.device)
        batch = Padding(pad=int(base.tokenizer.pad_token_id))(examples[: config.batch_size])
        control, forward = PrecisionControl(precision, place.device), loss_of(model, place.device)

        def in_precision(batch: Any) -> Any:
            with control.autocast():
                return forward(batch)

        return inspect_training(model, optimizer, batch, in_precision, steps=steps)


def _silent(_: str) -> None:
    return
