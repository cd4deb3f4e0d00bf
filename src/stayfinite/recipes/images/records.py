"""Records of a run, and next to a trained model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from stayfinite.autopsy.steps.surroundings import device_in_words, versions
from stayfinite.recipes.images.answers import Prompt
from stayfinite.recipes.images.folds import Split
from stayfinite.recipes.images.models import parameters_in_words, save_model
from stayfinite.recipes.images.pairs import LABELS

META = "run_meta.json"


def write_meta(
    output: Path, config: Any, pairs: Split, weights: Sequence[float], prompt: Prompt, model: Any, *,
    device: torch.device, precision: str, steps: int,
) -> None:  # fmt: skip
    """Write run_meta.json: settings, versions, pairs, class weights, prompt, parameters."""
    record = {
        "version": 1, "config": asdict(config), "versions": versions(), "device": device_in_words(device),
        "precision": precision, "steps": steps, "training_pairs": len(pairs.training),
        "validation_pairs": len(pairs.validation), "shared_images": pairs.shared_images,
        "class_weights": list(weights), "prompt": prompt.text,
        "answers": dict(zip(prompt.words, prompt.answers, strict=True)), "parameters": parameters_in_words(model),
    }  # fmt: skip
    _write(output / META, record)


def read_class_weights(output: Path) -> list[float]:
    """The class weights a run was started with."""
    weights: list[float] = json.loads((output / META).read_text(encoding="utf-8"))["class_weights"]
    return weights


def save_trained(model: Any, processor: Any, config: Any, prompt: Prompt, into: Path) -> None:
    """Save a model for others to load, with its prompt in compare.json."""
    save_model(model, processor, into)
    record = {
        "version": 1, "model": config.model, "question": config.question, "prompt": prompt.text,
        "answers": dict(zip(LABELS, prompt.answers, strict=True)),
    }  # fmt: skip
    _write(into / "compare.json", record)


def _write(path: Path, record: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False), encoding="utf-8")
