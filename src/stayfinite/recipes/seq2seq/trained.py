"""A translation model on disk: weights and settings, and the shape of a run's model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.models import with_fused_norms

SETTINGS = "translate.json"
"""Settings file next to the weights."""
SHAPE = "model"
"""Directory in a run that holds its model's config."""


def save_trained(model: Any, tokenizer: Any, config: Any, into: Path) -> None:
    """Save a model for transformers and ``stayfinite translate``."""
    model.save_pretrained(into)
    tokenizer.save_pretrained(into)
    (into / SETTINGS).write_text(json.dumps(asdict(config), indent=1, ensure_ascii=False), encoding="utf-8")


def keep_shape(model: Any, tokenizer: Any, run: Path) -> None:
    """Save a run's tokenizer and model config, without weights, for `rebuild`."""
    tokenizer.save_pretrained(run / "tokenizer")
    model.config.save_pretrained(run / SHAPE)


def rebuild(run: Path) -> Any:
    """The model of a run, with random weights. Raises UsageError if the run does not describe its model."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    try:
        config = AutoConfig.from_pretrained(run / SHAPE)
    except (OSError, ValueError) as error:
        raise UsageError(f"{run / SHAPE} is not a valid model config: {str(error).splitlines()[0]}") from error
    kind: Any = AutoModelForSeq2SeqLM  # has no annotations
    return with_fused_norms(kind.from_config(config))
