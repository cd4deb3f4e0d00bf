"""Draw training rows again: is an input flipped or rotated while its label stays?"""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from stayfinite.doctor.frames import is_users
from stayfinite.doctor.patching.text import called
from stayfinite.doctor.record import Program, tensors_in
from stayfinite.doctor.slicing import quoted, tree_of
from stayfinite.doctor.told import Told, told
from stayfinite.state.rng import capture_rng, restore_rng

ROWS, DRAWS = 4, 8
SECONDS = 1.5
ALIKE, UNLIKE = 0.97, 0.9
"""Correlations of a drawn input with an earlier one: flipped and unflipped."""
FLIPS = ("flip", "fliplr", "flipud", "hflip", "vflip", "rot90", "rotate")
"""Functions that flip or rotate."""
TURNS: dict[str, Callable[[Tensor], Tensor]] = {
    "mirrored": lambda t: t.flip(-1),
    "upside down": lambda t: t.flip(-2),
    "turned by 180 degrees": lambda t: t.flip(-1, -2),
    "turned by 90 degrees": lambda t: t.rot90(1, (-2, -1)),
    "turned by 270 degrees": lambda t: t.rot90(3, (-2, -1)),
}


def judge(program: Program) -> Iterator[Told]:
    """Draw a few rows of each training dataset several times."""
    for seen in program.loaders.values():
        dataset = getattr(seen.loader, "dataset", None)
        if not seen.trained or dataset is None or isinstance(dataset, IterableDataset) or not _is_map(dataset):
            continue
        if not is_users(_file_of(dataset)):
            continue
        generators = capture_rng()
        try:
            turned = _turned_alone(dataset)
        finally:
            restore_rng(generators)
        if turned:
            flip = _line_of_flip(dataset)
            place = _file_of(dataset), flip or _line_of(dataset)
            said = f"Drawn again, row {turned[0]} of {type(dataset).__name__} came {turned[1]} with the same label."
            yield told("labels-not-augmented", [*([quoted(place)] if flip else []), said], place=place, weight=1.9)
            return


def _is_map(dataset: Any) -> bool:
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")


def _file_of(dataset: Any) -> str:
    code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
    return str(getattr(code, "co_filename", ""))


def _line_of(dataset: Any) -> int:
    return int(type(dataset).__getitem__.__code__.co_firstlineno)


def _line_of_flip(dataset: Any) -> int:
    """The only line of ``__getitem__``, or of its class, that flips or rotates; 0 if there is none or several."""
    tree = tree_of(_file_of(dataset))
    first = _line_of(dataset)
    for owner in () if tree is None else ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and first in (
                method.lineno,
                *(d.lineno for d in method.decorator_list),
            ):
                lines = _flips_in(method) or _flips_in(owner)
                return lines.pop() if len(lines) == 1 else 0
    return 0


def _flips_in(tree: ast.AST) -> set[int]:
    """Lines that call a flip or rotation, or slice backwards as in ``x[:, ::-1]``."""
    calls = {n.lineno for n in ast.walk(tree) if isinstance(n, ast.Call) and called(n) in FLIPS}
    backwards = {
        n.lineno
        for n in ast.walk(tree)
        if isinstance(n, ast.Subscript)
        and any(isinstance(s, ast.Slice) and isinstance(s.step, ast.UnaryOp) for s in ast.walk(n.slice))
    }
    return calls | backwards


def _turned_alone(dataset: Any) -> tuple[int, str] | None:
    """A row whose input was flipped while its label was unchanged, and how."""
    start = time.monotonic()
    for row in range(min(ROWS, len(dataset))):
        drawn: list[tuple[Tensor, Tensor]] = []
        for _ in range(DRAWS):
            parts = tensors_in(dataset[row])
            if len(parts) < 2 or parts[0].shape[-2:] != parts[1].shape[-2:] or parts[0].dim() < 2:
                return None
            drawn.append((parts[0].detach().double(), parts[1].detach().double()))
            if time.monotonic() - start > SECONDS:
                return None
        found = _compare(drawn)
        if found:
            return row, found
    return None


def _compare(drawn: list[tuple[Tensor, Tensor]]) -> str:
    first_input, first_label = drawn[0]
    for given, label in drawn[1:]:
        if not torch.equal(label, first_label) or given.shape != first_input.shape:
            continue
        for words, turn in TURNS.items():
            other = turn(first_input)
            if other.shape != given.shape or torch.equal(turn(first_label), first_label):
                continue
            if _correlation(given, other) > ALIKE and _correlation(given, first_input) < UNLIKE:
                return words
    return ""


def _correlation(one: Tensor, other: Tensor) -> float:
    both = torch.stack([one.reshape(-1), other.reshape(-1)])
    found = float(torch.corrcoef(both)[0, 1]) if both.shape[1] > 1 else 0.0
    return found if math.isfinite(found) else 0.0
