"""Every public name has an example in its docstring, and it does what it shows."""

from __future__ import annotations

import doctest
import inspect
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stayfinite
from stayfinite import rl

LOG = "".join(f"{{'loss': {2.0 - 0.1 * step:.2f}, 'grad_norm': 1.3, 'epoch': {step}}}\n" for step in range(8)) + (
    "{'loss': 0.0, 'grad_norm': nan, 'epoch': 8}\n" * 4
)


def needs_example(name: str) -> bool:
    """Whether a name is more than a word, an error or a module."""
    value = getattr(stayfinite, name)
    word_or_error = inspect.isclass(value) and issubclass(value, Enum | Exception)
    return callable(value) and not word_or_error


EXAMPLES: dict[str, Any] = {name: getattr(stayfinite, name) for name in stayfinite.__all__ if needs_example(name)}
EXAMPLES |= {f"rl.{name}": getattr(rl, name) for name in ("signals", "preference_signals", "value_signals")}
EXAMPLES |= {f"rl.{name}": getattr(rl, name) for name in ("explain_mismatch", "Reference", "Steering", "sound_groups")}
EXAMPLES["StayfiniteError"] = stayfinite.StayfiniteError


def surroundings() -> dict[str, Any]:
    """What the examples take for granted: a small training and a log."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = [torch.randn(16, 8) for _ in range(3)]

    def compute_loss(model: nn.Module, batch: Tensor) -> Tensor:
        return (model(batch) - batch).square().mean()

    Path("train.log").write_text(LOG, encoding="utf-8")
    return {
        "torch": torch, "stayfinite": stayfinite, "rl": rl, "Guard": stayfinite.Guard, "model": model,
        "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0), "loader": loader,
        "batch": loader[0], "compute_loss": compute_loss, "forward": lambda batch: compute_loss(model, batch),
        "guard": stayfinite.Guard(model, optimizer, max_norm=1.0),
    }  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_public_name_does_what_it_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    docstring = inspect.getdoc(EXAMPLES[name]) or ""
    example = doctest.DocTestParser().get_doctest(docstring, surroundings(), name, None, 0)
    assert example.examples, f"{name} shows no example"
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=told.append)
    assert not result.failed, "".join(told)
