"""Data as the models got it: repeated, unshuffled, scaled differently, or mislabeled."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import RandomSampler

from stayfinite.doctor.judges.course import learned, not_learning
from stayfinite.doctor.patching.text import called
from stayfinite.doctor.record import ModelSeen, Program, tensors_in
from stayfinite.doctor.slicing import tree_of
from stayfinite.doctor.told import Told, told
from stayfinite.inspection.probes.split_readings import prepared_differently

FEWEST = 6
APART = 0.3
FEWEST_VALUES = 64
FAR_UNSCALED = 100.0
RANDOM_ORDERS = ("randperm", "permutation")


def judge(program: Program) -> Iterator[Told]:
    """Data faults."""
    yield from _repeated(program)
    yield from _stored_order(program)
    for seen in program.learning_models():
        yield from _scaled(program, seen)
        yield from _unscaled(program, seen)
    yield from _shuffled_apart(program)
    yield from _other_labels(program)
    yield from _time_first(program)
    yield from _last_of_one(program)


def _last_of_one(program: Program) -> Iterator[Told]:
    """BatchNorm refused a last batch of one row."""
    if not any("more than 1 value per channel when training" in line for _, line in program.printed[-40:]):
        return
    for seen in program.loaders.values():
        rows = [len(each) for each in tensors_in(seen.last) if each.dim()]
        if seen.trained and rows and rows[0] == 1:
            yield told(
                "last-batch-of-one", [f"Batch {seen.in_epoch} of the loader has 1 row, and BatchNorm needs 2."],
                weight=2.6, fix="DataLoader(..., drop_last=True)",
            )  # fmt: skip
            return


def _time_first(program: Program) -> Iterator[Told]:
    """A time-first module gets batch-first input, so it reads rows as time steps."""
    rows = {each.rows for each in program.loss_calls.values() if each.learns and each.rows > 1}
    for kind, shape, place in program.sequences.values():
        if len(rows) == 1 and shape[0] in rows and shape[1] not in rows and shape[0] != shape[1]:
            yield told(
                "samples-leak",
                [f"{kind} expects time first but got {list(shape)} for {shape[0]} labels: it reads rows as steps."],
                place=place, weight=1.8, fix="batch_first=True, or x.transpose(0, 1) before the call",
            )  # fmt: skip
            return


def _repeated(program: Program) -> Iterator[Told]:
    for loader in program.loaders.values():
        length = _length(loader.loader)
        if loader.trained and len(loader.prints) >= FEWEST and len(set(loader.prints)) == 1 and length > 1:
            yield _same_batch(
                program, f"The loader has {length} batches, but all {loader.batches} read were identical.", 2.0,
                fix="read the loader in a for loop, or keep one iterator: next(iter(loader)) starts over every time",
            )  # fmt: skip
            return
    for seen in program.learning_models():
        prints = seen.prints
        if len(prints) >= FEWEST and len(set(prints)) == 1 and seen.part_of_base <= 0.34:
            yield _same_batch(
                program, f"All {len(prints)} training calls got the same rows: {seen.part_of_base:.0%} of the tensor.",
                1.8, fix="advance through the data: x[i:i + batch_size] with i growing",
            )  # fmt: skip
            return


def _same_batch(program: Program, evidence: str, weight: float, fix: str) -> Told:
    return told(
        "duplicate-rows", [evidence], title="Every step trains on the same batch.", severity="error",
        place=_line_of_training(program), weight=weight, fix=fix,
    )  # fmt: skip


def _line_of_training(program: Program) -> tuple[str, int]:
    return max(program.losses, key=lambda place: len(program.losses[place]), default=("", 0))


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except (TypeError, ValueError):
        return 0


def _stored_order(program: Program) -> Iterator[Told]:
    for seen in program.loss_calls.values():
        if not seen.learns or len(seen.labels) < 4 or min(len(each) for each in seen.labels[:4]) < 4:
            continue
        batches = [each for each in seen.labels if len(each) >= 4]
        everything = torch.cat(batches)
        if everything.unique().numel() < 2:
            continue
        pure = sum(_purity(each) for each in batches) / len(batches)
        large = _purity(everything)
        jumps = sum(1 for one, two in pairwise(batches) if one.mode().values != two.mode().values)
        if pure > 0.9 and pure - large > APART and jumps <= 0.5 * len(batches):
            yield told(
                "unshuffled",
                [f"On average {pure:.0%} of a batch is one class.",
                 f"Over all {len(batches)} batches no class exceeds {large:.0%}."],
                place=seen.place, weight=2.0, severity="error",
                fix="shuffle the training rows: DataLoader(..., shuffle=True), or a new randperm each epoch",
            )  # fmt: skip


def _purity(labels: torch.Tensor) -> float:
    return float(labels.unique(return_counts=True)[1].max()) / len(labels)


def _scaled(program: Program, seen: ModelSeen) -> Iterator[Told]:
    one, two = seen.training, seen.evaluation
    few = min(one.count, two.count) < FEWEST_VALUES or one.shape != two.shape
    if few or sum(each.steps > 0 for each in program.optimizers.values()) > 1 or not seen.judged:
        return
    if not prepared_differently(one.mean, one.spread, two.mean, two.spread):
        return
    place = max(two.places, key=lambda each: two.places[each], default=("", 0))
    said = [f"{name} inputs: mean {each.mean:.3g}, std {each.spread:.3g}."
            for name, each in (("Training", one), ("Evaluation", two))]  # fmt: skip
    yield told("splits-scaled-differently", said, place=place, weight=2.0)


def _unscaled(program: Program, seen: ModelSeen) -> Iterator[Told]:
    """Inputs so large that they drown the weights, while nothing is learned."""
    given = seen.training
    size = max(abs(given.mean), given.spread) if given.count >= FEWEST_VALUES else 0.0
    stuck = program.bad is not None or not learned(program.main_loss(), 0.2)
    if math.isfinite(size) and size > FAR_UNSCALED and stuck:
        place = max(given.places, key=lambda each: given.places[each], default=("", 0))
        yield told(
            "unscaled-input", [f"Inputs have mean {given.mean:.3g} and std {given.spread:.3g}."], place=place,
            weight=1.45 if program.bad is None else 1.9, confidence=0.8,
        )  # fmt: skip


def _shuffled_apart(program: Program) -> Iterator[Told]:
    together = [
        each
        for each in program.loaders.values()
        if isinstance(getattr(each.loader, "sampler", None), RandomSampler)
        and each.batches >= FEWEST
        and _one_column(each.last)
    ]
    if len(together) == 2 and abs(together[0].batches - together[1].batches) <= 1:
        one, two = together
        same = getattr(one.loader, "generator", None) is not None and one.loader.generator is two.loader.generator
        if _length(one.loader) == _length(two.loader) and not same:
            yield told(
                "labels-shuffled", ["Two loaders with shuffle=True are read side by side. Each draws its own order."],
                place=_line_of_training(program), weight=2.2,
                fix="use one DataLoader over TensorDataset(x, y): it keeps input and label together",
            )  # fmt: skip
            return
    for filename in dict.fromkeys(place[0] for place in program.losses):
        tree = tree_of(filename) if filename else None
        found = None if tree is None else two_orders(tree)
        if found is not None and not _fell(program):
            names, line = found
            yield told(
                "labels-shuffled",
                [f"{Path(filename).name}:{line}: {names[0]} and {names[1]} are shuffled by two different permutations.",
                 "The loss has not halved since the first steps."],
                place=(filename, line), where=f"{Path(filename).name}:{line}", weight=2.1,
            )  # fmt: skip
            return


def _other_labels(program: Program) -> Iterator[Told]:
    """The same rows have other labels in the next epoch."""
    for seen in program.loss_calls.values():
        often = seen.again >= 64 and len(seen.pairs) >= 64 and seen.again <= 64 * len(seen.pairs)
        if seen.learns and often and seen.other_label > 0.3 * seen.again and not_learning(program):
            yield told(
                "labels-shuffled",
                [f"{seen.other_label} of {seen.again} repeated inputs came with a different label than before.",
                 "The loss shows no learning."],
                place=seen.place, weight=2.1, fix="index inputs and labels by the same permutation",
            )  # fmt: skip
            return


def _fell(program: Program) -> bool:
    losses = program.main_loss().finite
    if len(losses) < 10:
        return False
    tenth = max(1, len(losses) // 10)
    begin, end = sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
    return end < 0.5 * begin


def _one_column(batch: object) -> bool:
    return isinstance(batch, torch.Tensor) or (isinstance(batch, list | tuple) and len(batch) == 1)


def two_orders(tree: ast.Module) -> tuple[tuple[str, str], int] | None:
    """Two arrays shuffled by different permutations, and the line of the second."""
    for body in _bodies(tree):
        orders: dict[str, str] = {}
        shuffled: list[tuple[str, str, int]] = []
        for statement in body:
            if any(called(n) in ("seed", "manual_seed") for n in ast.walk(statement)):
                shuffled.clear()
            if (made := _new_order(statement)) is not None:
                orders[made] = f"{made}@{statement.lineno}"
                continue
            for name, order in _shuffles(statement, orders):
                for other, its_order, _ in shuffled:
                    if its_order != order and other != name and _are_pair(other, name):
                        return (other, name), statement.lineno
                shuffled.append((name, order, statement.lineno))
    return None


def _new_order(statement: ast.stmt) -> str | None:
    """The name assigned a fresh random permutation by this statement, or None."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name), *_], value=ast.Call() as call) if called(call) in RANDOM_ORDERS:
            of_an_array = bool(call.args) and isinstance(call.args[0], ast.Name) and called(call) == "permutation"
            return None if of_an_array else name
    return None


def _are_pair(one: str, two: str) -> bool:
    """Whether exactly one name denotes labels and both are of the same split."""
    labels = [_of_labels(one), _of_labels(two)]
    splits = [next((s for s in ("train", "test", "val") if s in name.lower()), "") for name in (one, two)]
    return labels.count(True) == 1 and splits[0] == splits[1]


def _of_labels(name: str) -> bool:
    low = name.lower()
    return (
        low.startswith(("y", "label", "target", "tgt", "cls", "t_"))
        or low.endswith(("_y", "labels", "targets", "_label"))
        or low == "t"
    )


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


def _shuffles(statement: ast.stmt, orders: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Names a statement shuffles, each with an id of the permutation."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    match statement:
        case ast.Expr(value=ast.Call(args=[ast.Name(id=name)]) as call) if called(call) == "shuffle":
            yield name, f"shuffle@{statement.lineno}"
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pairs = [*zip(targets, values, strict=False)]
        case ast.Assign(targets=[target]):
            pairs = [(target, statement.value)]
    for pair in pairs:
        match pair:
            case ast.Name(id=name), ast.Call(args=[ast.Name(), *_]) as call if called(call) == "permutation":
                yield name, f"{call.lineno}:{call.col_offset}"
            case ast.Name(id=name), ast.Subscript(slice=ast.Name(id=index)) if index in orders:
                yield name, orders[index]
            case ast.Name(id=name), ast.Subscript(slice=ast.Call() as call) if called(call) in RANDOM_ORDERS:
                yield name, f"{call.lineno}:{call.col_offset}"
