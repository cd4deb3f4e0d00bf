"""Check the margins of a precision plan in sampled steps; a module near its format's limit gets a wider one."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.surroundings import is_compiled
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.measure.forward_look import Ear
from stayfinite.measure.mailbox import Mailbox
from stayfinite.measure.sample import Sample
from stayfinite.precision.applying import applied_to, raise_format
from stayfinite.precision.formats import E4M3, FP16
from stayfinite.precision.units import multiplies, units_of
from stayfinite.state.parts import unwrapped

NEAR = 0.75
"""Share of fp16's range at which a module gets a wider format; a plan leaves half of the range free."""
LOST = 0.5
"""Share of a layer's inputs that fp8 rounds to 0 at which it gets a wider format."""

Label = tuple[int, tuple[str, ...]]


class PlanMargins:
    """Hooks the planned modules of a sampled step, and widens those about to overflow.

    Does nothing without a plan, or if the plan has neither fp16 nor fp8.

    Arguments:
        alone: whether this is the only rank; with several a module is only named, since all would have to change it at
            the same step.
    """

    def __init__(self, model: nn.Module, recorder: Recorder, due: Callable[[int], bool], *, alone: bool) -> None:
        self._model, self._recorder, self._due, self._alone = model, recorder, due, alone
        self._handles: list[Any] = []
        self._found: dict[str, Tensor] = {}
        self._mail: Mailbox[Label] = Mailbox()
        self._reported: set[tuple[str, str]] = set()

    def expect(self, step: int) -> None:
        """Hook the forward passes of this step if it is sampled."""
        self.forget()
        model = unwrapped(self._model)
        if applied_to(model) is None or not self._due(step) or is_compiled(self._model):
            return
        for name, module in units_of(model):
            kind = self._format_of(model, name)
            if multiplies(module) and (kind == "fp16" or kind.startswith("fp8")):
                self._handles.append(module.register_forward_hook(Ear(partial(self._hear, name, kind))))

    def forget(self) -> None:
        """Remove the hooks, after the step or its failure."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._found = [], {}

    def post(self, sample: Sample) -> None:
        """Send the measurements of a sampled step to the host, asynchronously."""
        found = self._found
        self.forget()
        if found:
            values = [each.double() for each in found.values()]
            self._mail.post((sample.step, tuple(found)), torch.stack([each.to(values[0].device) for each in values]))

    def collect(self, *, wait: bool = False) -> None:
        """Judge the measurements that arrived, and widen formats."""
        for (step, names), values in self._mail.collect(wait=wait):
            for name, share in zip(names, values, strict=True):
                self._judge(step, name, share)
                if not math.isfinite(share):
                    break  # later modules inherit the infinity

    def _judge(self, step: int, name: str, share: float) -> None:
        model = unwrapped(self._model)
        kind = self._format_of(model, name)
        if kind == "fp16" and not share <= NEAR:
            seen = f"{name} is at {share:.0%} of fp16's range" if share < 10 else f"{name} is beyond fp16's range"
        elif kind.startswith("fp8") and share > LOST:
            seen = f"{share:.0%} of the inputs of {name} round to 0 in fp8"
        else:
            return
        if (name, kind) in self._reported:
            return
        self._reported.add((name, kind))
        if self._alone:
            reached = raise_format(model, name)
            then = f"it computes in {reached} from now on"
        else:
            reached, then = kind, "plan again, or keep it in a wider format"
        self._recorder.announce(
            "plan-margin",
            step,
            f"step {step}: {seen}; {then}",
            reason=seen,
            module=name,
            from_precision=kind,
            to_precision=reached,
            share=share,
        )

    @staticmethod
    def _format_of(model: nn.Module, name: str) -> str:
        applied = applied_to(model)
        return "" if applied is None else applied.assignment.formats.get(name, applied.assignment.base)

    @torch.no_grad()
    def _hear(self, name: str, kind: str, _module: nn.Module, args: Any, output: Any) -> None:
        tensors = [x for x in (*args, output) if isinstance(x, Tensor) and x.is_floating_point() and x.numel()]
        if not tensors:
            return
        if kind == "fp16":
            sizes = [torch.linalg.vector_norm(x, torch.inf).float() for x in tensors]
            seen = torch.stack(sizes).amax() / FP16.largest
        else:
            values = tensors[0].abs().float()
            most = values.amax(-1, keepdim=True) if kind == "fp8-rowwise" else values.amax()
            small = values < most * (E4M3.smallest_subnormal / 2 / E4M3.largest)
            alive = values > 0
            seen = (small & alive).sum().float() / alive.sum().clamp(min=1)
        before = self._found.get(name)
        self._found[name] = seen if before is None else torch.maximum(before, seen)
