"""Logs in formats that nobody has written a reader for: position, names, separators and numbers in any combination."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

LOSSES = (
    "loss", "train_loss", "xent", "L", "CE", "objective", "nll", "L_total", "criterion", "mse", "train/loss",
    "losses.total",
    "J", "Train Loss", "avg_loss", "ce_loss", "tloss",
)  # fmt: skip
NORMS = ("gn", "|g|", "grad_norm", "gnorm", "g-norm", "grad l2", "gradnorm", "", "")
PREFIXES: tuple[Callable[[int], str], ...] = (
    lambda _: "",
    lambda i: f"2026-01-02 03:{i // 60 % 60:02d}:{i % 60:02d},123 ",
    lambda i: f"[03:{i // 60 % 60:02d}:{i % 60:02d}] ",
    lambda _: "INFO:train:",
    lambda _: "[rank0]: ",
    lambda i: f"I0102 03:{i // 60 % 60:02d}:{i % 60:02d}.000123 99 loop.py:88] ",
    lambda _: "▶ ",
)
PLACES: tuple[Callable[[int], str], ...] = (
    lambda i: f"step {i}",
    lambda i: f"{i}/60000",
    lambda i: f"it={i:06d}",
    lambda i: f"[{i // 200}][{i % 200}/200]",
    lambda i: f"Epoch {i // 200} ({i % 200} of 200)",
    lambda i: f"{i}:",
    lambda i: f"#{i}",
    lambda i: f"e{i // 200:02d}b{i % 200:05d}",
    lambda i: f"update {i:,}",
    lambda i: f"<{i}>",
)
SEPARATORS = (", ", " | ", " ", "  ", " ; ", "\t", " · ", " - ")
PAIRS: tuple[Callable[[str, str], str], ...] = (
    lambda name, value: f"{name}: {value}",
    lambda name, value: f"{name}={value}",
    lambda name, value: f"{name} {value}",
    lambda name, value: f"{name} -> {value}",
    lambda name, value: f"{name}({value})",
    lambda name, value: f"[{name}] {value}",
)
NUMBERS: tuple[Callable[[float], str], ...] = (
    lambda value: f"{value:.4f}",
    lambda value: f"{value:.6g}",
    lambda value: f"{value:.3e}",
    repr,
    lambda value: f"{value:8.3f}",
)
EXTRAS: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("lr", lambda _: "1.0e-04"),
    ("time", lambda i: f"{0.3 + i * 7 % 13 / 100:.3f}s"),
    ("mem", lambda _: "11.3GB"),
    ("tok/s", lambda i: f"{3000 + i * 37 % 211}"),
    ("acc", lambda i: f"{min(0.2 + i / 4000, 0.8) + i * 7 % 13 / 500:.3f}"),
)
STEPS = 40


def losses_and_norms(seed: int, course: str) -> list[tuple[float, float]]:
    """One pair a line: `healthy`, or `nan`, `inf`, `explodes` after a while, or `nan at once`."""
    chance = random.Random(seed)
    top = chance.choice((2.5, 8.0, 0.9))
    low = top * chance.choice((0.05, 0.25, 0.6))
    rows = []
    for line in range(1, STEPS + 1):
        loss = max((top - low) * math.exp(-line / 15) + low + chance.gauss(0, 0.02 * top), 0.01)
        norm = 1 + abs(chance.gauss(0, 0.3))
        late = line - 26
        if course == "explodes" and late > 0:
            loss, norm = loss * 2.2**late, norm * 2.5**late
        if course == "nan at once" or (course == "nan" and late > 0):
            loss = norm = math.nan
        if course == "inf" and late > 0:
            loss = norm = math.inf
        rows.append((loss, norm))
    return rows


def odd_log(seed: int, rows: Sequence[tuple[float, float]]) -> str:
    """The rows in the format of this seed."""
    chance = random.Random(seed)
    prefix, place, separator, pair, number = map(chance.choice, (PREFIXES, PLACES, SEPARATORS, PAIRS, NUMBERS))
    every = chance.choice((1, 10, 50))
    extras = chance.sample(EXTRAS, chance.randint(0, 3))
    norm = chance.choice(NORMS)
    names = [chance.choice(LOSSES), *([norm] if norm else []), *(name for name, _ in extras)]
    lines = []
    for index, (loss, gradient) in enumerate(rows, 1):
        step = index * every
        values = [number(loss), *([number(gradient)] if norm else []), *(of(step) for _, of in extras)]
        pairs = [pair(name, value) for name, value in zip(names, values, strict=True)]
        lines.append(prefix(step) + place(step) + separator + separator.join(pairs))
    return "\n".join(lines) + "\n"
