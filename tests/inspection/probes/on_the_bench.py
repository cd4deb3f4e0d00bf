"""A small training on the bench, looked at by some probes only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW, Optimizer

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.notes import Notes

Batch = tuple[Tensor, Tensor]


def small_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4))


def small_batch(rows: int = 6) -> Batch:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, 8, generator=generator), torch.arange(rows) % 4


def loss_of(model: nn.Module, autocast: torch.dtype | None = None) -> Callable[[Batch], Tensor]:
    def forward(batch: Batch) -> Tensor:
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            return functional.cross_entropy(model(batch[0]), batch[1])

    return forward


def bench_of(
    model: nn.Module | None = None,
    *,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = lambda parameters: AdamW(parameters, lr=1e-3),
    autocast: torch.dtype | None = None,
    forward: Callable[[Any], Any] | None = None,
    batch: Any = None,
    **parts: Any,
) -> Bench:
    model = small_model() if model is None else model
    return Bench(
        model=model,
        optimizer=optimizer(model.parameters()),
        batch=small_batch() if batch is None else batch,
        forward=forward or loss_of(model, autocast),
        **parts,
    )


def looked(bench: Bench, *probes: ModuleType | Callable[[Bench, Notes], None]) -> Inspection:
    """What the rules make of what these probes see; the training is as it was afterwards."""
    notes = Notes()
    before = {name: tensor.clone() for name, tensor in bench.model.state_dict().items()}
    generator = torch.get_rng_state()
    with bench.kept.undone():
        for probe in probes:
            (probe.look if isinstance(probe, ModuleType) else probe)(bench, notes)
    assert torch.equal(generator, torch.get_rng_state())
    for name, tensor in bench.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert not bench.optimizer.state
    return conclude(notes)


def causes(found: Inspection) -> list[str]:
    return [each.cause for each in found.findings]


def line(found: Inspection, title: str) -> Any:
    return next(each for each in found.lines if title in each.title)
