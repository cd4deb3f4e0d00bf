"""Keep linear layers within fp16's range while a model trains, whatever their inputs and weights become.

A layer that comes near the limit computes `(x * g) @ (weight * f)` in fp16 and gives the result back in fp32, divided
by both. The factors are powers of two, found for each input from norms of its rows and of the weight's: by Cauchy and
Schwarz no output is larger than their product. So they need no history, a second pass over the same input (gradient
checkpointing, evaluation, an average of the weights) finds the same, and the host never waits for them.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stayfinite.errors import UsageError
from stayfinite.precision.formats import FP16
from stayfinite.precision.surgery.measuring import check_full_precision
from stayfinite.state.shards import is_spread

NEAR = FP16.largest / 4
"""A layer whose bound is beyond this is scaled from then on."""
TOP = 15
"""Of two: the bound of a scaled layer's inputs, weights and outputs, half of fp16's range."""

_RECENT: deque[weakref.ref[KeptLinear]] = deque(maxlen=2)
"""The layers called last: what is between them and the next, such as a gate's product, computes in their format."""


@dataclass(slots=True)
class Watch:
    """What is known of one layer."""

    every: int
    offset: int
    """Layers are judged in turn."""
    scaled: bool = False
    calls: int = 0
    peak: Tensor | None = None
    """Largest norm of an input row since the layer was judged last."""


class KeptLinear(nn.Linear):
    """A linear layer that fp16 autocast cannot make overflow. A layer becomes one by :func:`keep_in_range`."""

    watch: Watch

    def forward(self, input: Tensor) -> Tensor:
        """As nn.Linear; in fp32 where fp16 would not hold the output."""
        if not self._concerned(input):
            return F.linear(input, self.weight, self.bias)
        if torch.compiler.is_compiling():
            return self._scaled(input)  # a decision of the host would break the graph
        if not self.watch.scaled and not _recomputing():
            self._judge(input)
        _RECENT.append(weakref.ref(self))
        return self._scaled(input) if self.watch.scaled else F.linear(input, self.weight, self.bias)

    def _concerned(self, x: Tensor) -> bool:
        kind = x.device.type
        in_fp16 = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) is torch.float16
        return in_fp16 and bool(x.numel()) and x.dtype is not torch.float64 and not is_spread(self.weight)

    @torch.no_grad()
    def _judge(self, x: Tensor) -> None:
        """Note how large the input is; every so often, and at first, see whether the layer has to be scaled."""
        watch, peak = self.watch, _longest(x)
        if watch.peak is not None and watch.peak.device == peak.device:
            peak = torch.maximum(watch.peak, peak)
        watch.peak = peak
        watch.calls += 1
        young = watch.calls <= 2 * watch.every  # a training moves fastest at its start
        if not young and (watch.calls + watch.offset) % watch.every:
            return
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        row = _longest(self.weight)
        sizes = torch.stack([peak, row, _bound(peak, row, self.bias)]).tolist()
        watch.peak = None
        watch.scaled = not all(size <= NEAR for size in sizes)
        if math.isinf(sizes[0]):
            # Computed in fp16 between layers: with their outputs in fp32 it is not.
            for layer in (reference() for reference in _RECENT):
                if isinstance(layer, KeptLinear):  # still there, and still kept
                    layer.watch.scaled = True

    def _scaled(self, x: Tensor) -> Tensor:
        for_x, for_weight, back = _factors(x, self.weight, self.bias)
        bias = None if self.bias is None else self.bias * (for_x * for_weight)
        return F.linear(x * for_x, self.weight * for_weight, bias).float() * back


class InRange:
    """The kept layers of a model. Made by :func:`keep_in_range`."""

    def __init__(self, model: nn.Module, *, every: int = 10) -> None:
        check_full_precision(model)
        if every < 1:
            raise UsageError(f"every={every}", fix="judge layers every 10th pass: every=10")
        self._layers: dict[str, nn.Module] = {
            name: module
            for name, module in model.named_modules()
            if type(module) in (nn.Linear, KeptLinear) and "weight" in module._parameters
        }
        if not self._layers:
            raise UsageError(
                f"{type(model).__name__} has no nn.Linear layer",
                fix="keep what overflows in fp32 (`stayfinite precision`); keep_in_range comes before fully_shard",
            )
        for offset, layer in enumerate(self._layers.values()):
            if not isinstance(layer, KeptLinear):
                layer.__class__ = KeptLinear
                vars(layer)["watch"] = Watch(every=every, offset=offset)

    @property
    def scaled(self) -> list[str]:
        """Names of the layers that came near the limit, and are scaled since."""
        return [name for name, layer in self._layers.items() if isinstance(layer, KeptLinear) and layer.watch.scaled]

    def remove(self) -> None:
        """Make every layer the nn.Linear that it was."""
        for layer in self._layers.values():
            if vars(layer).pop("watch", None) is not None:
                layer.__class__ = nn.Linear


def keep_in_range(model: nn.Module, *, every: int = 10) -> InRange:
    """Train a model in fp16 autocast that overflows there: its linear layers are kept within the range.

    Function, weights, optimizer and checkpoints stay the same. A layer that comes near the limit gives out fp32.
    Only nn.Linear layers are kept, not subclasses or layers whose weight is computed (pruning, weight_norm).

    Arguments:
        model: weights in fp32. Before fully_shard; before or after peft, DDP and torch.compile.
        every: judge each layer at its first passes, then at every so many. In between an input that leaps beyond the
            range overflows, and the loss scaler skips these steps.

    Raises:
        UsageError: no linear layer, or weights in half precision.

    Examples:
        >>> kept = stayfinite.keep_in_range(model)
        >>> with torch.autocast("cpu", dtype=torch.float16):
        ...     output = model(batch * 1e6)  # far beyond 65,504
        >>> bool(output.isfinite().all()), kept.scaled
        (True, ['0', '2'])
    """
    return InRange(model, every=every)


def _recomputing() -> bool:
    """Whether this is a second forward pass, within a backward pass: it has to repeat the first."""
    return torch._C._current_graph_task_id() != -1


def _longest(rows: Tensor) -> Tensor:
    """The largest norm of a row. Rows with NaN do not count: no factor helps them."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float32)
    return norms.nan_to_num(0.0, posinf=math.inf).amax()


def _bound(longest: Tensor, row: Tensor, bias: Tensor | None) -> Tensor:
    """What no output exceeds, given the longest rows of input and weight."""
    return longest * row if bias is None else longest * row + bias.abs().amax()


@torch.no_grad()
def _factors(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """For the input, for the weight, and to give back: the least that brings all three below the limit.

    What the input loses the weight gains where it can: the weight's gradient is then as much smaller as the input.
    """
    longest, row = _longest(x), _longest(weight)
    of_x = _beyond(longest).clamp(min=0)
    of_output = _beyond(_bound(longest, row, bias)).clamp(min=0)
    of_weight = torch.maximum(_beyond(row), of_output - of_x)
    return _power(-of_x), _power(-of_weight), _power(of_x + of_weight)


def _beyond(size: Tensor) -> Tensor:
    """By how many powers of two a size is above the limit; negative below it."""
    return (torch.log2(size) - TOP).ceil().nan_to_num(0.0, posinf=0.0, neginf=-60.0).clamp(-60, 60).to(torch.int32)


def _power(exponent: Tensor) -> Tensor:
    """Two to an integer, exact: the bits of a float with nothing but an exponent."""
    return ((exponent + 127) << 23).view(torch.float32)
