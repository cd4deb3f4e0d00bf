"""The ways of taking a training step that are measured side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.on_gpu.shapes import GRAPH, GRAPH_STATISTICS, LEARNING_RATE, SNAPSHOT, STATISTICS, Workload
from stayfinite import Guard, Policy

MAX_NORM = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way of taking a step."""

    step: Callable[[], object]
    settle: Callable[[], object] = lambda: None
    """What is still to be paid for at the end of a turn."""
    begin: Callable[[], object] = lambda: None
    """What belongs to the turn at its beginning."""
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """Switched on for the steps of this way only."""
    spread_over: int = 0
    """The turn holds one event; what it costs beyond the guard's own steps is spread over so many."""


@dataclass
class Remarks:
    """A console that keeps what the guards say; they say nothing while all is well."""

    lines: list[str] = field(default_factory=list)

    def print(self, line: object) -> None:
        """Keep a line."""
        self.lines.append(str(line))


class Ways:
    """Builds ways over one workload; each has a scheduler of its own."""

    def __init__(self, work: Workload, directory: Path, open_ones: ExitStack) -> None:
        self._work, self._directory, self._open = work, directory, open_ones
        self.remarks = Remarks()

    def build(self, name: str) -> Way:
        """The way of this name."""
        return MAKERS[name](self)

    # -- loops without a guard ---------------------------------------------------------------------------------------

    def plain(self, *, clip: bool = True, around: Callable[[], AbstractContextManager[object]] = nullcontext) -> Way:
        """The loop that everyone writes."""
        work, scheduler = self._work, self._scheduler(self._work.optimizer)

        def step() -> None:
            work.loss().backward()
            if clip:
                nn.utils.clip_grad_norm_(work.parameters, MAX_NORM)
            work.optimizer.step()
            scheduler.step()
            work.optimizer.zero_grad(set_to_none=True)

        return Way(step=step, around=around)

    def checked(self, good: Callable[[Tensor], bool]) -> Way:
        """The loop that looks before it steps; ``good`` is given the norm."""
        work, scheduler = self._work, self._scheduler(self._work.optimizer)

        def step() -> None:
            work.loss().backward()
            if good(nn.utils.clip_grad_norm_(work.parameters, MAX_NORM)):
                work.optimizer.step()
                scheduler.step()
            work.optimizer.zero_grad(set_to_none=True)

        return Way(step=step)

    def every_gradient(self, _: Tensor) -> bool:
        """The loop over parameters that is found in many a script."""
        return not any(bool(torch.isnan(p.grad).any()) for p in self._work.parameters if p.grad is not None)

    def accelerated(self) -> Way:
        """accelerate's usual path."""
        from accelerate import Accelerator

        accelerator, work = Accelerator(), self._work
        optimizer = accelerator.prepare_optimizer(work.optimizer)
        scheduler = self._scheduler(work.optimizer)

        def step() -> None:
            accelerator.backward(work.loss())
            accelerator.clip_grad_norm_(work.parameters, MAX_NORM)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

        return Way(step=step)

    def fabric(self) -> Way:
        """Lightning Fabric's usual path, which raises where the norm is not finite."""
        try:
            from lightning.fabric import Fabric
        except ImportError:
            from lightning_fabric import Fabric  # type: ignore[assignment]

        work = self._work
        fabric = Fabric(accelerator=work.device.type, devices=1)
        model, optimizer = fabric.setup(work.model, work.new_optimizer(LEARNING_RATE))
        scheduler = self._scheduler(work.optimizer)

        def step() -> None:
            fabric.backward(work.loss())
            fabric.clip_gradients(model, optimizer, max_norm=MAX_NORM)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

        return Way(step=step)

    # -- guards ------------------------------------------------------------------------------------------------------

    def guarded(
        self, name: str, *, fold: bool = True, kernels: bool = True, compiled: bool = False, **policy: object
    ) -> Way:
        """The loop with a guard that writes its run directory."""
        work = self._work
        optimizer = work.new_optimizer(LEARNING_RATE) if compiled else work.optimizer
        guard = self._guard(name, optimizer, Policy(**({"snapshots": False} | policy)))  # type: ignore[arg-type]
        guard._setup.fold_clip = guard._setup.fold_clip and fold
        if not kernels:
            guard._reader.fused = None
        if compiled:
            optimizer.step = torch.compile(optimizer.step)  # type: ignore[method-assign]
        return Way(step=lambda: guard.step(work.loss()), settle=guard.flush)

    def with_snapshots(self) -> Way:
        """The same, and a snapshot in every turn."""
        work = self._work
        guard = self._guard("snapshots", work.optimizer, Policy(prove_steps=1))

        def begin() -> None:
            guard._recovery._cadence.at_once()

        return Way(step=lambda: guard.step(work.loss()), settle=guard.flush, begin=begin, spread_over=50)

    def graphed(self, name: str, **policy: object) -> Way:
        """The guarded step as a CUDA graph."""
        work = self._work
        rate = torch.tensor(LEARNING_RATE, device=work.device)
        settings = Policy(**({"snapshots": False} | policy))  # type: ignore[arg-type]
        guard = self._guard(name, work.new_optimizer(rate), settings)
        step = guard.graphed()
        return Way(step=lambda: step(work.next_batch()), settle=guard.flush)

    def _guard(self, name: str, optimizer: torch.optim.Optimizer, policy: Policy) -> Guard:
        guard = Guard(
            self._work.model, optimizer, self._scheduler(optimizer), policy=policy, max_norm=MAX_NORM,
            run_dir=self._directory / name, forward=self._work.loss_of, console=self.remarks,
        )  # fmt: skip
        return self._open.enter_context(guard)

    def _scheduler(self, optimizer: torch.optim.Optimizer) -> LambdaLR:
        return LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))

    @contextmanager
    def underflow_overflow(self) -> Iterator[None]:
        """transformers' DebugUnderflowOverflow, taken off again at the end."""
        from transformers.debug_utils import DebugUnderflowOverflow

        debug = DebugUnderflowOverflow(self._work.model)
        try:
            yield
        finally:
            for module in self._work.model.modules():
                for key, hook in list(module._forward_hooks.items()):
                    if getattr(hook, "__self__", None) is debug:
                        del module._forward_hooks[key]


BASE, AGAIN, BARE, GUARD = "clip", "clip again", "no clip", "guard"
MAKERS: dict[str, Callable[[Ways], Way]] = {
    BASE: lambda ways: ways.plain(),
    AGAIN: lambda ways: ways.plain(),
    BARE: lambda ways: ways.plain(clip=False),
    GUARD: lambda ways: ways.guarded("guard"),
    STATISTICS: lambda ways: ways.guarded("every", sample_every=1),
    "guard, clip in place": lambda ways: ways.guarded("in-place", fold=False),
    "guard, torch's own reading": lambda ways: ways.guarded("foreach", fold=False, kernels=False),
    SNAPSHOT: lambda ways: ways.with_snapshots(),
    GRAPH: lambda ways: ways.graphed("graph", sample_every=0),
    GRAPH_STATISTICS: lambda ways: ways.graphed("graph-every", sample_every=1),
    "guard, compiled optimizer": lambda ways: ways.guarded("compiled", compiled=True),
    "host check of the norm": lambda ways: ways.checked(lambda norm: bool(torch.isfinite(norm))),
    "NaN loop over parameters": lambda ways: ways.checked(ways.every_gradient),
    "accelerate's usual path": lambda ways: ways.accelerated(),
    "Lightning Fabric's usual path": lambda ways: ways.fabric(),
    "set_detect_anomaly": lambda ways: ways.plain(around=lambda: torch.autograd.set_detect_anomaly(True)),
    "DebugUnderflowOverflow": lambda ways: ways.plain(around=ways.underflow_overflow),
}
SLOW = ("set_detect_anomaly", "DebugUnderflowOverflow")
"""Measured at the first repeat only."""
COMPILED_ONLY = ("guard, compiled optimizer",)
