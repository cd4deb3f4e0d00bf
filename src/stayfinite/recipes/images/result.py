"""Result of a comparison training: object, file, plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stayfinite.errors import MissingExtra
from stayfinite.recipes.images.evaluating import Scores
from stayfinite.recipes.images.pairs import LABELS
from stayfinite.recipes.running.best import Best
from stayfinite.recipes.running.records import Outcome, write_result


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
