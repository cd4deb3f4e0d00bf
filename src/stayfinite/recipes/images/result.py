"""Result of a comparison training: object, file, plot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stayfinite.errors import MissingExtra
from stayfinite.recipes.images.confusion import save_confusion
from stayfinite.recipes.images.evaluating import Scores
from stayfinite.recipes.images.pairs import LABELS
from stayfinite.recipes.running.best import Best
from stayfinite.recipes.running.outcome import Outcome
from stayfinite.recipes.running.records import write_result


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
        save_confusion(
            scores.confusion, result.directory / "confusion.png",
            title=f"accuracy {scores.accuracy:.1%}, {scores.swap_consistency:.1%} consistent under the swap",
        )  # fmt: skip
    except MissingExtra as error:
        say(f"no confusion.png: {error}")
