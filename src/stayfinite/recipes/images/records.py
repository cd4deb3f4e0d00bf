"""Records of a comparison: what was trained, a line per epoch, and the result."""

import csv
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from stayfinite.autopsy.steps.surroundings import device_in_words, versions
from stayfinite.errors import MissingExtra
from stayfinite.recipes.images.data import Split
from stayfinite.recipes.images.evaluating import Scores
from stayfinite.recipes.images.losses import Prompt
from stayfinite.recipes.images.models import parameters_in_words, save_model
from stayfinite.recipes.images.pairs import LABELS
from stayfinite.recipes.running.directories import replacing
from stayfinite.recipes.running.records import Best, Outcome, write_record, write_result

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
    write_record(output / META, record)


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
    write_record(into / "compare.json", record)


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
        _save_confusion(scores, result.directory / "confusion.png")
    except ImportError:
        missing = MissingExtra.of("matplotlib", extra="report", what_for="drawing the confusion matrix")
        say(f"no confusion.png: {missing}")


def _save_confusion(scores: Scores, out: Path) -> None:
    """Draw the matrix: rows are true classes, columns answers, colors shares of the row."""
    from matplotlib.figure import Figure

    shares = [[count / max(1, sum(row)) for count in row] for row in scores.confusion]
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for y, row in enumerate(scores.confusion):
        for x, count in enumerate(row):
            ink = "white" if shares[y][x] > 0.55 else "black"
            axis.text(x, y, f"{count:,}\n{shares[y][x]:.0%}", ha="center", va="center", color=ink)
    axis.set(xticks=range(len(LABELS)), xticklabels=LABELS, xlabel="answered")
    axis.set(yticks=range(len(LABELS)), yticklabels=LABELS, ylabel="is")
    title = f"accuracy {scores.accuracy:.1%}, {scores.swap_consistency:.1%} consistent under the swap"
    axis.set_title(title, fontsize="medium")
    figure.colorbar(image, ax=axis, label="share of the row", shrink=0.85)
    figure.savefig(out, dpi=150)


NAME = "training_log.csv"


class EpochLog:
    """One line per epoch, computed from steps.jsonl, so that a kill loses nothing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows: list[dict[str, Any]] = []

    def recall(self, step: int) -> None:
        """Restore the lines up to this step."""
        path = self._directory / NAME
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                self._rows = [row for row in csv.DictReader(file) if int(row["step"]) <= step]

    def has(self, epoch: int) -> bool:
        return any(int(row["epoch"]) == epoch for row in self._rows)

    def write(self, epoch: int, step: int, **numbers: float | None) -> None:
        """Write the line of an epoch, replacing an earlier one."""
        self._rows = [row for row in self._rows if int(row["epoch"]) < epoch]
        begun = int(self._rows[-1]["step"]) if self._rows else 0
        row: dict[str, Any] = {"epoch": epoch, "step": step, **self._steps(begun, step), **numbers}
        self._rows.append({name: _plain(value) for name, value in row.items()})
        with replacing(self._directory / NAME, newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self._rows[-1]))
            writer.writeheader()
            writer.writerows(self._rows)

    def _steps(self, after: int, last: int) -> dict[str, Any]:
        """Means over an epoch's steps. Refused steps are counted but not averaged."""
        steps: dict[int, dict[str, Any]] = {}
        with (self._directory / "steps.jsonl").open(encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                if after < record["step"] <= last:
                    steps[record["step"]] = record  # a step repeated after a kill counts once
        taken = [record for record in steps.values() if record["decision"] in ("accept", "clip", "bound")]
        parts = [record.get("parts") or {} for record in taken]
        return {
            "train_loss": _mean([record["loss"] for record in taken]),
            "answer_loss": _mean([part.get("answer") for part in parts]),
            "consistency_loss": _mean([part.get("consistency") for part in parts]),
            "grad_norm": _mean([record["grad_norm"] for record in taken]),
            "clipped": sum(record["decision"] == "clip" for record in taken),
            "refused": len(steps) - len(taken),
            "loss_scale": next((record["loss_scale"] for record in reversed(taken)), None),
        }


def memory_peak(device: torch.device) -> float:
    """Peak memory in MiB: since the last call on CUDA, of the process elsewhere."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device) / 2**20
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def _mean(values: list[Any]) -> float:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known else float("nan")


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return f"{value:.6g}" if math.isfinite(value) else ""
