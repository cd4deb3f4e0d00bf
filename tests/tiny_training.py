"""Tiny trainings, guarded and plain, and a look at a training state that misses no bit of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from stayfinite import Guard, Policy

ROWS, INPUTS, HIDDEN, OUTPUTS = 32, 8, 32, 4
PRECISIONS = ("fp32", "bf16-weights", "bf16-autocast", "fp16-autocast")
FAULTS = (
    "nan-loss", "inf-loss", "minus-inf-loss", "spike",
    "nan-element", "inf-element", "minus-inf-element", "last-parameter",
)  # fmt: skip


class TinyNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(INPUTS, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.down = nn.Linear(HIDDEN, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.tanh(self.norm(self.up(x))))


class Lines:
    """A console that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def print(self, line: Any) -> None:
        self.lines.append(str(line))


class UserLion(Optimizer):
    """What people write themselves: moments, a counter in the state, another one in the group."""

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "steps_taken": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            group["steps_taken"] += 1
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["count"], state["moment"] = 0, torch.zeros_like(p)
                state["count"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(0.9 * state["moment"] + 0.1 * p.grad), alpha=-group["lr"])
                state["moment"].mul_(0.99).add_(p.grad, alpha=0.01)


def eight_bit(params: Any) -> Optimizer:
    import bitsandbytes

    # Small tensors are kept in 32 bit unless told otherwise; here every moment is to be quantized.
    return bitsandbytes.optim.AdamW8bit(params, lr=1e-3, weight_decay=0.1, min_8bit_size=1)


def _ways(name: str, build: Callable[..., Optimizer], *, fused: bool = False, **settings: Any) -> dict[str, Any]:
    ways = {"plain": {"foreach": False}, "foreach": {"foreach": True}} | ({"fused": {"fused": True}} if fused else {})
    return {f"{name}-{way}": lambda params, how=how: build(params, **settings, **how) for way, how in ways.items()}


OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    **_ways("AdamW", torch.optim.AdamW, fused=True, lr=1e-3, weight_decay=0.1),
    **_ways("Adam", torch.optim.Adam, fused=True, lr=1e-3, amsgrad=True),
    **_ways("SGD", torch.optim.SGD, fused=True, lr=1e-2, momentum=0.9, weight_decay=0.01),
    **_ways("SGD-dampening", torch.optim.SGD, fused=True, lr=1e-2, momentum=0.9, dampening=0.5),
    **_ways("Adagrad", torch.optim.Adagrad, fused=True, lr=1e-2),
    **_ways("RMSprop", torch.optim.RMSprop, lr=1e-3, momentum=0.9, centered=True),
    **_ways("NAdam", torch.optim.NAdam, lr=1e-3),
    **_ways("RAdam", torch.optim.RAdam, lr=1e-3),
    **_ways("Adafactor", torch.optim.Adafactor, lr=1e-3),
    "AdamW8bit": eight_bit,
    "user-written": UserLion,
}
FUSED = tuple(name for name in OPTIMIZERS if name.endswith("-fused"))


class Training:
    """A small training under a guard, with a plain way to take the same step for comparison."""

    def __init__(
        self,
        optimizer: str = "AdamW-plain",
        precision: str = "fp32",
        *,
        model: nn.Module | None = None,
        scheduler: Callable[[Optimizer], Any] | None = None,
        init_scale: float = 256.0,
        **guard_settings: Any,
    ) -> None:
        torch.manual_seed(0)
        self.precision = precision
        self.model = TinyNet() if model is None else model
        if precision == "bf16-weights":
            self.model.bfloat16()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scheduler = (scheduler or falling)(self.optimizer)
        self.scaler = None
        if precision == "fp16-autocast":
            self.scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=3)
        self.console = Lines()
        settings = {"max_norm": 1.0} | guard_settings
        self.guard = Guard(self.model, self.optimizer, self.scheduler, self.scaler, console=self.console, **settings)
        self.number = 0

    def loss(self, number: int | None = None) -> Tensor:
        """The loss on the next batch, or on the one with this number."""
        if number is None:
            self.number += 1
            number = self.number
        x, y = batch(number)
        if self.precision == "bf16-weights":
            x = x.bfloat16()
        dtype = {"bf16-autocast": torch.bfloat16, "fp16-autocast": torch.float16}.get(self.precision)
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            out = self.model(x)
        return F.mse_loss(out.float(), y)

    def good(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.guard.step(self.loss())

    def settled(self, steps: int) -> dict[str, Any]:
        """The state after so many good steps, once all of them are known."""
        self.good(steps)
        self.guard.flush()
        return self.state()

    def bad(self, fault: str | None = "nan-loss") -> None:
        with planted(fault, self.model) as factor:
            self.guard.step(self.loss() * factor)

    def bad_ones(self, faults: Sequence[str | None]) -> None:
        """A step for each fault (None for a good one), and wait until all of them are known."""
        for fault in faults:
            self.bad(fault)
        self.guard.flush()

    def plain(self, fault: str | None = None, max_norm: float | None = 1.0) -> None:
        """The step that a loop without a guard would take."""
        with planted(fault, self.model) as factor:
            loss = self.loss() * factor
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        return fingerprint(
            parameters=dict(self.model.named_parameters()),
            buffers=dict(self.model.named_buffers()),
            moments=[dict(self.optimizer.state.get(p, {})) for p in self.model.parameters()],
            groups=[{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups],
            schedule=self.scheduler.state_dict() if hasattr(self.scheduler, "state_dict") else vars(self.scheduler),
        )


def guarded(model: nn.Module, optimizer: Any, *args: Any, **settings: Any) -> Guard:
    """A guard that says nothing aloud."""
    return Guard(model, optimizer, *args, console=Lines(), **settings)


def falling(optimizer: Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.05 * step))


def batch(number: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(ROWS, INPUTS, generator=generator)
    return x, x[:, :OUTPUTS] - 0.5 * x[:, 1 : OUTPUTS + 1]


def loss_of(model: nn.Module, number: int = 0) -> Tensor:
    """The loss of any model with the tiny net's inputs and outputs, in fp32."""
    x, y = batch(number)
    return F.mse_loss(model(x), y)


@contextmanager
def planted(fault: str | None, model: nn.Module) -> Iterator[float]:
    """Within, a fault sits in the model's gradients; yields the factor that brings it into the loss."""
    in_loss = {"nan-loss": math.nan, "inf-loss": math.inf, "minus-inf-loss": -math.inf, "spike": 1000.0}
    in_gradient = {
        "nan-element": math.nan, "inf-element": math.inf, "minus-inf-element": -math.inf, "last-parameter": math.nan,
    }  # fmt: skip
    hook = None
    if fault in in_gradient:
        trained = [p for p in model.parameters() if p.requires_grad]
        parameter = trained[-1 if fault == "last-parameter" else 0]
        hook = parameter.register_hook(lambda grad: spoilt(grad, in_gradient[fault]))
    try:
        yield in_loss.get(fault or "", 1.0)
    finally:
        if hook is not None:
            hook.remove()


def spoilt(grad: Tensor, value: float) -> Tensor:
    """A copy with one bad element."""
    grad = grad.clone()
    (grad._values() if grad.is_sparse else grad).view(-1)[-1] = value
    return grad


def fingerprint(**things: Any) -> dict[str, Any]:
    """Every leaf of nested things by its path; tensors down to the last bit, so that NaN equals the same NaN."""
    leaves: dict[str, Any] = {}

    def walk(path: str, thing: Any) -> None:
        if isinstance(thing, Tensor):
            plain = thing.detach().cpu().contiguous().reshape(-1)
            leaves[path] = (str(thing.dtype), tuple(thing.shape), plain.view(torch.uint8).numpy().tobytes())
        elif isinstance(thing, dict):
            leaves[path] = f"{len(thing)} entries"
            for name, value in thing.items():
                walk(f"{path}.{name}", value)
        elif isinstance(thing, list | tuple):
            leaves[path] = f"{len(thing)} entries"
            for index, value in enumerate(thing):
                walk(f"{path}[{index}]", value)
        else:
            leaves[path] = repr(thing)

    for name, thing in things.items():
        walk(name, thing)
    return leaves


def everything(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    return fingerprint(
        model=model.state_dict(), grads={n: p.grad for n, p in model.named_parameters()}, state=optimizer.state_dict()
    )


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Paths at which two fingerprints differ."""
    return [path for path in before | after if before.get(path) != after.get(path)]


def all_finite(training: Training) -> bool:
    return all(bool(p.isfinite().all()) for p in training.model.parameters())


DEVICE = Policy(gate="device")
GATES = {"host": Policy(), "device": DEVICE}
both_gates = pytest.mark.parametrize("policy", GATES.values(), ids=GATES)
NOT_FINITE = tuple(fault for fault in FAULTS if fault != "spike")
REFUSING = {"host": Policy.refuse_spikes(), "device": Policy.refuse_spikes(gate="device")}
"""The gates under a policy that refuses finite spikes too."""
