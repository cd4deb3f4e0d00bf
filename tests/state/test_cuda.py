"""Snapshots that are copied from a CUDA device while training goes on.

Where pytest is missing:  PYTHONPATH=src:tests python3 tests/state/test_cuda.py
"""

from __future__ import annotations

import torch
from torch import nn

from on_a_gpu import MARKS, run_all
from stayfinite.state.parts import TrainingParts
from stayfinite.state.snapshots import SnapshotRing
from stayfinite.state.training import capture, restore

pytestmark = MARKS


def make() -> tuple[TrainingParts, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)], nn.BatchNorm1d(1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return TrainingParts(model=model, optimizer=optimizer), torch.randn(64, 1024, device="cuda")


def train(parts: TrainingParts, x: torch.Tensor, steps: int) -> None:
    for _ in range(steps):
        parts.model(x).pow(2).mean().backward()
        parts.optimizer.step()
        parts.optimizer.zero_grad()


def look(parts: TrainingParts) -> dict[str, torch.Tensor]:
    found = {name: tensor.detach().cpu().clone() for name, tensor in (parts.parameters() | parts.buffers()).items()}
    for name, p in parts.parameters().items():
        found |= {f"{name}.{key}": value.cpu().clone() for key, value in parts.optimizer.state[p].items()}
    return found


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


def test_a_copy_under_way_is_not_torn_by_the_steps_that_follow() -> None:
    parts, x = make()
    train(parts, x, 2)
    for _ in range(5):
        before = look(parts)
        state = capture(parts)
        train(parts, x, 3)
        assert state.poisoned() == []
        assert all(state.tensors[f"model.{name}"].is_pinned() for name in parts.parameters())
        restore(parts, state)
        assert same(before, look(parts))


def test_step_counters_stay_on_the_device_also_in_a_fresh_optimizer() -> None:
    parts, x = make()
    train(parts, x, 2)
    state = capture(parts)
    fresh, _ = make()
    restore(fresh, state)
    assert same(look(parts), look(fresh))
    assert all(each["step"].is_cuda for each in fresh.optimizer.state.values())
    train(fresh, x, 1)


def test_poison_is_found_on_the_device() -> None:
    parts, x = make()
    train(parts, x, 1)
    ring = SnapshotRing(parts, prove_steps=1)
    with torch.no_grad():
        next(iter(parts.parameters().values()))[0, 0] = torch.inf
    ring.take(1)
    torch.cuda.synchronize()
    ring.accepted(2)
    assert ring.known_good() is None
    assert ring.candidate is None


if __name__ == "__main__":
    run_all(globals())
