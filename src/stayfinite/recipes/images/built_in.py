"""Built-in task: drawn shapes, where the larger or brighter one wins."""

from __future__ import annotations

import csv
import random
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any, Literal

Task = Literal["size", "brightness"]
"""The property that is the score of an image."""
FOLDS = 5
LEVELS = 5
"""Number of distinct scores; two images with the same score are `Similar`."""


def draw_pairs(directory: Path, *, task: Task, seed: int, images: int = 600, pairs: int = 3000, side: int = 32) -> Path:
    """Draw images and write pairs.csv, with no image in two folds. Does nothing if the table exists.

    Returns:
        Path of the table.
    """
    table = directory / "pairs.csv"
    if table.exists():
        return table
    chance = random.Random(f"{task} {seed}")
    (directory / "images").mkdir(parents=True, exist_ok=True)
    scores: dict[str, int] = {}
    for number in range(images):
        name = f"images/{number:04}.png"
        scores[name] = number // FOLDS % LEVELS  # every level in each fold
        _draw(chance, task, scores[name], side).save(directory / name)
    names = list(scores)
    aside = table.with_suffix(".new")
    with aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["img1", "img2", "score1", "score2", "label", "fold"])
        for fold in range(FOLDS):
            for one, two, label in _paired(names[fold::FOLDS], scores, chance)[: pairs // FOLDS]:
                writer.writerow([one, two, scores[one], scores[two], ("First", "Second", "Similar")[label], fold])
    aside.replace(table)
    return table


def _paired(names: list[str], scores: dict[str, int], chance: random.Random) -> list[tuple[str, str, int]]:
    """All pairs in random order, classes alternating while each has one left."""
    by_label: dict[int, list[tuple[str, str, int]]] = {0: [], 1: [], 2: []}
    for one, two in combinations(names, 2):
        if chance.random() < 0.5:
            one, two = two, one
        label = 2 if scores[one] == scores[two] else 0 if scores[one] > scores[two] else 1
        by_label[label].append((one, two, label))
    for found in by_label.values():
        chance.shuffle(found)
    turns = zip_longest(*by_label.values())
    return [pair for turn in turns for pair in turn if pair is not None]


def _draw(chance: random.Random, task: Task, level: int, side: int) -> Any:
    """Draw one shape on a noisy background. Everything but the score is random."""
    import numpy as np
    from PIL import Image, ImageDraw

    big = side * 4  # drawn larger and scaled down for smooth edges
    size_level = level if task == "size" else chance.randrange(LEVELS)
    light_level = level if task == "brightness" else chance.randrange(LEVELS)
    radius = big * (0.10 + 0.075 * size_level + chance.uniform(-0.008, 0.008))
    light = 90 + 38 * light_level + chance.uniform(-4, 4)
    x, y = (chance.uniform(radius + 2, big - radius - 2) for _ in range(2))
    mask = Image.new("L", (big, big))
    pen = ImageDraw.Draw(mask)
    kind = chance.choice(("circle", "square", "diamond"))
    if kind == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    elif kind == "square":
        half = radius * 0.886  # same area as the circle
        pen.rectangle((x - half, y - half, x + half, y + half), fill=255)
    else:
        half = radius * 1.253
        pen.polygon([(x, y - half), (x + half, y), (x, y + half), (x - half, y)], fill=255)
    covered = np.asarray(mask.resize((side, side), Image.Resampling.BOX), dtype=np.float32)[..., None] / 255
    noise = np.random.default_rng(chance.randrange(2**32)).normal(0, 8, (side, side, 3))
    tint = np.array([chance.uniform(0.85, 1.0) for _ in range(3)])
    pixels = 40 + noise + covered * (light * tint - 40)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
