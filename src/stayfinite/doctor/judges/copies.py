"""Copies that should follow a model, and weights that should be tied: target networks, averages, embeddings."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from stayfinite.doctor.record import ModelSeen, Program
from stayfinite.doctor.told import Told, told

FOLLOWS = re.compile(
    r"target|\bema|_ema|ema_|shadow|momentum|average|slow_|_slow|key_enc|encoder_k|mean_teacher", re.IGNORECASE
)
"""Names of copies meant to follow the model."""
STAYS = re.compile(r"ref|frozen|prior|init|old|backup|best|teacher(?!_ema)", re.IGNORECASE)
"""Names of copies meant to stay fixed."""
FEWEST_STEPS = 30
MOST_ELEMENTS = 1 << 24


def judge(program: Program) -> Iterator[Told]:
    """Copies that never update, copies that are trained, and weights that came untied."""
    if program.bad is not None or program.steps < FEWEST_STEPS:
        return
    held = program.held()
    learning = [each for each in program.models.values() if _holds(each.module, held)]
    for copy in program.models.values():
        name = program.names.get(id(copy.module), "")
        if not FOLLOWS.search(name) or STAYS.search(name):
            continue
        for model in learning:
            if model is not copy and _is_first_of(program, model, copy):
                yield from _out_of_step(program, name, model, copy, trains=_holds(copy.module, held))
                break
    for model in learning:
        yield from _untied(program, model)


def _holds(module: nn.Module, held: set[int]) -> bool:
    return any(id(p) in held for p in module.parameters())


def _is_first_of(program: Program, model: ModelSeen, copy: ModelSeen) -> bool:
    """Whether two models have the same shapes, share nothing, and began with equal weights."""
    mine, theirs = list(model.module.parameters()), list(copy.module.parameters())
    if not mine or [p.shape for p in mine] != [p.shape for p in theirs]:
        return False
    pairs = list(zip(mine, theirs, strict=True))
    if any(one is two or id(one) not in program.first_weights for one, two in pairs):
        return False
    first = program.first_weights
    return all(torch.equal(first[id(one)], first.get(id(two), two.detach())) for one, two in pairs)


def _out_of_step(program: Program, name: str, model: ModelSeen, copy: ModelSeen, *, trains: bool) -> Iterator[Told]:
    pairs = list(zip(model.module.parameters(), copy.module.parameters(), strict=True))
    moved = any(not torch.equal(program.first_weights[id(p)], p.detach()) for p, _ in pairs)
    stayed = all(torch.equal(program.first_weights[id(one)], two.detach()) for one, two in pairs)
    if trains and not stayed:
        optimizer = next(iter(program.optimizers.values()))
        yield told(
            "target-out-of-step", [f"{name} began as a copy of the model. An optimizer trains it, too."],
            title="A target or EMA copy of the model is trained itself.", place=optimizer.place, weight=1.9,
            fix=f"give the optimizer the model's parameters only; {name}.requires_grad_(False)",
        )  # fmt: skip
    calls = copy.calls_evaluation + copy.calls_training
    if moved and stayed and not trains and calls >= 2:
        yield told(
            "target-out-of-step",
            [f"{name} still has the model's initial weights after {program.steps:,} steps and {calls} calls."],
            where=name, weight=2.0,
        )  # fmt: skip


def _untied(program: Program, model: ModelSeen) -> Iterator[Told]:
    """An embedding and an output layer that began equal and drift apart."""
    tables = [(n, m.weight) for n, m in model.module.named_modules() if isinstance(m, nn.Embedding)]
    layers = [(n, m.weight) for n, m in model.module.named_modules() if isinstance(m, nn.Linear)]
    for table_name, table in tables:
        for layer_name, layer in layers:
            if table is layer or table.shape != layer.shape or table.numel() > MOST_ELEMENTS:
                continue
            one, two = program.first_weights.get(id(table)), program.first_weights.get(id(layer))
            began_alike = one is not None and two is not None and torch.equal(one, two) and _varies(one)
            if began_alike and not torch.equal(table.detach(), layer.detach()):
                yield told(
                    "weights-untied",
                    [f"{table_name}.weight and {layer_name}.weight began equal. As two tensors they drifted apart."],
                    where=f"{table_name}, {layer_name}", weight=1.6,
                )  # fmt: skip


def _varies(values: Tensor) -> bool:
    return values.numel() > 1 and bool((values != values.reshape(-1)[0]).any())
