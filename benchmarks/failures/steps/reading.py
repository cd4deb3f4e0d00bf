"""Reads the short trainings: the unseen ones here, the known ones from ``tests/faults/autopsies``."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.failures.steps.record import FAULTS, LOOK_ALIKES, StepCase, Training

TESTS = Path(__file__).resolve().parents[3] / "tests"
UNSEEN = Path(__file__).parent / "unseen"


def read(split: str) -> Iterator[StepCase]:
    """All short trainings of a split."""
    yield from _known() if split == "known" else _unseen()


def _unseen() -> Iterator[StepCase]:
    for path in sorted(UNSEEN.glob("[a-z]*.py")):
        import_module(f"benchmarks.failures.steps.unseen.{path.stem}")
    author = "stayfinite, apart from the guard"
    for build, causes in FAULTS:
        yield _case("unseen", build.__name__, causes, build, author)
    for build in LOOK_ALIKES:
        yield _case("unseen", build.__name__, (), build, author)


@cache
def _known() -> tuple[StepCase, ...]:
    """One step each. Left out are those whose fault lies before the step, which a loop of one step cannot show."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    campaign = import_module("faults.autopsies.campaign")
    author = "stayfinite, with the autopsy"
    cases = []
    for name, entry in campaign.FAULTS.items():
        planted = entry()
        if "trigger" not in planted.materials:
            cases.append(_case("known", name, planted.cause, partial(_one_step, entry), author))
    cases += [
        _case("known", name, (), partial(_one_step, entry), author) for name, entry in campaign.LOOK_ALIKES.items()
    ]
    return tuple(cases)


def _one_step(entry: Callable[[], Any]) -> Training:
    planted = entry()
    step = planted.step
    optimizer = getattr(planted, "materials", {}).get("optimizer")
    if optimizer is None:
        optimizer = torch.optim.SGD([each for each in step.model.parameters() if each.requires_grad], lr=1e-3)
    return Training(
        model=step.model, forward=step.forward, batches=[step.batch], optimizer=optimizer, autocast=step.autocast,
        scale=step.scale,
    )  # fmt: skip


def _case(split: str, name: str, causes: tuple[str, ...], build: Callable[[], Training], author: str) -> StepCase:
    def seeded() -> Training:
        torch.manual_seed(0)
        random.seed(0)
        return build()

    return StepCase(part="steps", split=split, name=name, causes=causes, author=author, build=seeded)
