"""A translation model on disk: the trained one with the settings that its use needs, and the shape of a run's own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError

SETTINGS = "translate.json"
"""What a trained model keeps its settings in, beside its weights."""
SHAPE = "model"
"""The directory in a run that says what its model looks like."""


def save_trained(model: Any, tokenizer: Any, config: Any, into: Path) -> None:
    """Write a model so that transformers, and ``stayfinite translate``, can load it."""
    model.save_pretrained(into)
    tokenizer.save_pretrained(into)
    (into / SETTINGS).write_text(json.dumps(asdict(config), indent=1, ensure_ascii=False), encoding="utf-8")


def keep_shape(model: Any, tokenizer: Any, run: Path) -> None:
    """Write a run's tokenizer and what its model looks like, without weights: `rebuild` needs no more."""
    tokenizer.save_pretrained(run / "tokenizer")
    model.config.save_pretrained(run / SHAPE)


def rebuild(run: Path) -> Any:
    """The model of a run, with fresh weights.

    Raises:
        UsageError: the run directory does not describe its model.
    """
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    try:
        config = AutoConfig.from_pretrained(run / SHAPE)
    except (OSError, ValueError) as error:
        raise UsageError(f"{run / SHAPE} is not a valid model config: {str(error).splitlines()[0]}") from error
    kind: Any = AutoModelForSeq2SeqLM  # it carries no annotations
    return kind.from_config(config)
