"""Records of a comparison: what was trained, and the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from stayfinite.autopsy.steps.surroundings import device_in_words, versions
from stayfinite.errors import MissingExtra
from stayfinite.recipes.images.answers import Prompt
from stayfinite.recipes.images.evaluating import Scores
from stayfinite.recipes.images.folds import Split
from stayfinite.recipes.images.models import parameters_in_words, save_model
from stayfinite.recipes.images.pairs import LABELS
from stayfinite.recipes.running.best import Best
from stayfinite.recipes.running.records import Outcome, write_result

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """Result of a training; scores are of the best model on held-out pairs."""

    scores: Scores | None
    """None after --dry-run."""


def keep_result(result: Result, best: Best, rate: float, say: Callable[[str], None]) -> None:
    """Write result.json, and confusion.png if matplotlib is installed.

    Arguments:
        rate: pairs per second.
    """
    scores = result.scores
    assert scores is not None
    write_result(
        result.directory,
        {
            "scores": scores.numbers() | {"pairs": scores.pairs}, "confusion": scores.confusion, "classes": LABELS,
            **result.numbers(), "pairs_per_second": round(rate, 1), "evaluations": best.history,
        },
    )  # fmt: skip
    try:
        _save_confusion(
            scores.confusion, result.directory / "confusion.png",
            title=f"accuracy {scores.accuracy:.1%}, {scores.swap_consistency:.1%} consistent under the swap",
        )  # fmt: skip
    except MissingExtra as error:
        say(f"no confusion.png: {error}")


def _save_confusion(confusion: Sequence[Sequence[int]], out: Path, *, title: str) -> None:
    """Draw the matrix: rows are true classes, columns answers, colors shares of the row."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra.of("matplotlib", extra="report", what_for="drawing the confusion matrix") from None
    shares = [[count / max(1, sum(row)) for count in row] for row in confusion]
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for y, row in enumerate(confusion):
        for x, count in enumerate(row):
            axis.text(
                x, y, f"{count:,}\n{shares[y][x]:.0%}", ha="center", va="center",
                color="white" if shares[y][x] > 0.55 else "black",
            )  # fmt: skip
    axis.set_xticks(range(len(LABELS)), LABELS)
    axis.set_yticks(range(len(LABELS)), LABELS)
    axis.set_xlabel("answered")
    axis.set_ylabel("is")
    axis.set_title(title, fontsize="medium")
    figure.colorbar(image, ax=axis, label="share of the row", shrink=0.85)
    figure.savefig(out, dpi=150)
