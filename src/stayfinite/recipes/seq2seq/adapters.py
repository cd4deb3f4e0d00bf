"""LoRA adapters on a frozen model, also in 8 bits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stayfinite.errors import MissingExtra, UsageError

CONFIG = "adapter_config.json"


def add_adapters(
    model: Any, *, rank: int, alpha: float, dropout: float, targets: Sequence[str], eight_bit: bool, checkpointing: bool
) -> Any:
    """Add adapters, the only trained part. 8-bit weights are prepared first.

    Raises:
        UsageError: the model has no such layers.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingExtra.of("peft", extra="hf", what_for="training adapters") from error
    if eight_bit:
        prepare: Any = peft.prepare_model_for_kbit_training  # has no annotations
        model = prepare(
            model,
            use_gradient_checkpointing=checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": False},
        )
    shape = peft.LoraConfig(
        task_type="SEQ_2_SEQ_LM", r=rank, lora_alpha=int(alpha), lora_dropout=dropout, target_modules=list(targets)
    )
    try:
        return peft.get_peft_model(model, shape)
    except ValueError as error:
        raise UsageError(
            f"cannot add adapters to {', '.join(targets)}: {str(error).splitlines()[0]}",
            fix="--lora-targets with names of linear layers: q v for T5 and mT5",
        ) from error


def is_adapter(directory: Path) -> bool:
    """Whether a directory holds adapters rather than a whole model."""
    return (directory / CONFIG).is_file()


def base_of(directory: Path) -> str:
    """Name of the adapters' base model. Raises UsageError if not recorded."""
    try:
        name = json.loads((directory / CONFIG).read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"cannot read {directory / CONFIG}: {error}") from error
    if not name:
        raise UsageError(f"{directory / CONFIG} does not name the base model")
    return str(name)


def load_adapters(model: Any, directory: Path) -> Any:
    """The base model with adapters, for inference."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise MissingExtra.of("peft", extra="hf", what_for="loading adapters") from error
    return PeftModel.from_pretrained(model, str(directory))
