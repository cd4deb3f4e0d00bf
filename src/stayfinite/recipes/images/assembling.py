"""Build the model for the run's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from stayfinite.recipes.images.models import add_lora, choose_trained, load_model
from stayfinite.recipes.images.tiny import is_size, write_base
from stayfinite.recipes.running.directories import write_whole

KEPT = "base"
"""Subdirectory for a base that was built for the run."""


def uses_lora(config: Any) -> bool:
    """Whether to train adapters rather than the whole language model."""
    return bool(config.tuning == "lora" or (config.tuning == "auto" and not is_size(config.model)))


def base_of(config: Any) -> str:
    """Where to load the base from: the run itself if it is built here."""
    return str(Path(config.output_dir) / KEPT) if is_size(config.model) else str(config.model)


def build_base(config: Any) -> None:
    """Write a base with random weights into the run, if the settings name a built-in size."""
    if is_size(config.model):
        write_whole(
            Path(base_of(config)),
            lambda into: write_base(
                into, config.model, question=config.question, answers=config.answers, image_size=config.image_size
            ),
        )


def assembled(config: Any, device: torch.device) -> Any:
    """The model on its device, with adapters if configured and only the trained part unfrozen."""
    model = load_model(base_of(config), base=config.base, device=device, cache_dir=config.cache_dir)
    lora = uses_lora(config)
    vision = config.vision == "trained" or (config.vision == "auto" and is_size(config.model) and not lora)
    if lora:
        model = add_lora(
            model, rank=config.lora_rank, alpha=config.lora_alpha, dropout=config.lora_dropout, vision=vision
        )
    choose_trained(model, vision=vision)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()
