"""Plot of the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stayfinite.errors import MissingExtra
from stayfinite.recipes.images.pairs import LABELS


def save_confusion(confusion: Sequence[Sequence[int]], out: Path, *, title: str) -> None:
    """Draw the matrix: rows are true classes, columns answers, colors shares of the row.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
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
