"""Built-in data: colored figures on a field as latents, each with a sentence that describes it.

Generated from scratch. Every sentence occurs once, so that validation sentences are never trained on: color, figure,
place, strength and field must be learned separately and combined.
"""

import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from stayfinite.errors import UsageError
from stayfinite.recipes.running.directories import require_room

STRENGTHS = {"dim": 0.6, "clear": 1.2, "bright": 2.0}
COLOURS = {
    "red": (1.0, -0.5, -0.5, 0.2), "green": (-0.5, 1.0, -0.5, 0.2), "blue": (-0.5, -0.5, 1.0, 0.2),
    "yellow": (0.9, 0.9, -0.6, 0.0), "violet": (0.9, -0.6, 0.9, 0.0), "white": (0.8, 0.8, 0.8, 0.4),
}  # fmt: skip
FIGURES = {
    "cross": ((0, 1, 0), (1, 1, 1), (0, 1, 0)),
    "square": ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "ring": ((1, 1, 1), (1, 0, 1), (1, 1, 1)),
    "bar": ((0, 1, 0), (0, 1, 0), (0, 1, 0)),
}
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "centre", "right")
FIELDS = {"": 0.0, "dark": -0.8, "pale": 0.8}
GLOW = 0.2
"""Share of a figure's color added to the whole field."""
GRAIN = 0.1
"""Standard deviation of the noise in every latent."""
SIDE, LENGTH, FILE_ROWS = 9, 9, 24
VOCABULARY = (
    "<pad>", ".", "at", "on", *STRENGTHS, *COLOURS, *FIGURES, *ROWS, *COLUMNS,
    *filter(None, FIELDS),
)  # fmt: skip


def write_toy_set(directory: Path, *, seed: int = 0, rows: int | None = None) -> int:
    """Write tokens/*.npz, latents/*.npy and vocab.json. Returns the number of rows.

    Arguments:
        directory: existing files are overwritten.
        seed: for order and noise.
        rows: limit; default: all 1,944 sentences.
    """
    chance = np.random.default_rng(seed)
    scenes = list(product(STRENGTHS, COLOURS, FIGURES, ROWS, COLUMNS, FIELDS))
    chance.shuffle(scenes)
    scenes = scenes[:rows]
    for part in ("tokens", "latents"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, len(scenes), FILE_ROWS)):
        held = scenes[start : start + FILE_ROWS]
        texts = [_sentence(*scene) for scene in held]
        ids = np.array([[VOCABULARY.index(word) for word in text] + [0] * (LENGTH - len(text)) for text in texts])
        mask = np.array([[1] * len(text) + [0] * (LENGTH - len(text)) for text in texts])
        latents = np.stack([_latent(*scene, chance) for scene in held])
        np.savez(directory / "tokens" / f"scenes-{number:03}.npz", input_ids=ids, attention_mask=mask)
        np.save(directory / "latents" / f"scenes-{number:03}.npy", latents.astype(np.float32))
    (directory / "vocab.json").write_text(json.dumps(list(VOCABULARY)), encoding="utf-8")
    return len(scenes)


def main(arguments: Sequence[str], say: Callable[[str], None] = print) -> None:
    """``stayfinite train mmdit toy DIR``: write the built-in data for inspection.

    Raises:
        UsageError: no directory, or one that already holds data.
    """
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise UsageError("expected one output directory for the built-in data", fix="stayfinite train mmdit toy pairs")
    directory = Path(arguments[0])
    if any((directory / part).exists() for part in ("tokens", "latents")):
        raise UsageError(f"{directory} already holds data", fix="name a new directory")
    require_room(directory, "toy")
    count = write_toy_set(directory)
    say(f"saved {count:,} rows to {directory}: stayfinite train mmdit --data {directory} --patch 3")


def _sentence(strength: str, colour: str, figure: str, row: str, column: str, field: str) -> list[str]:
    words = [strength, colour, figure, "at", row, column]
    return [*words, *(["on", field] if field else []), "."]


def _latent(
    strength: str, colour: str, figure: str, row: str, column: str, field: str, chance: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    latent = chance.normal(0.0, GRAIN, (4, SIDE, SIDE))
    latent[3] += FIELDS[field]
    light = STRENGTHS[strength] * np.array(COLOURS[colour])[:, None, None]
    latent += GLOW * light
    top, left = 3 * ROWS.index(row), 3 * COLUMNS.index(column)
    latent[:, top : top + 3, left : left + 3] += light * np.array(FIGURES[figure])
    return latent
