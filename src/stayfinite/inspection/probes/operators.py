"""Watch the operators of one pass: dtype, magnitude of results, what leaves the fp16 range.

In an fp16 pass, results beyond the range are clamped, so that the pass continues and every overflow is found, not just
the first. Half-precision matrix products are computed in fp32 and rounded, as accelerators do, which also supports CPUs
without these formats.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stayfinite.autopsy.tracing.tracer import every_module_heard

LARGEST = 65504.0  # the largest fp16 value
OVERFLOWS = 65520.0  # smallest value that rounds to infinity in fp16
NO_ACTIVATION = 1e8
"""Negative values beyond this among ordinary ones are a mask: -1e9, the fp32 minimum."""

PRODUCTS = frozenset({
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "convolution", "convolution_backward",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward",
})  # fmt: skip
"""Operators that mixed precision runs in half precision."""

HALVES = (torch.float16, torch.bfloat16)


@dataclass(slots=True)
class Operation:
    """One operator call."""

    operator: str
    """Such as `mm`."""
    backward: bool
    module: str
    """Path of the innermost module that ran it, or whose derivative it computes; empty outside the model."""
    dtype: torch.dtype
    largest: float
    """Largest magnitude of its result without masks, before clamping."""
    leaves: bool = False
    """It leaves the fp16 range."""
    first: bool = False
    """It leaves the range, and none of its inputs did."""


class RangeWatch(TorchDispatchMode):
    """A context for one pass; ``seen`` holds its operators."""

    def __init__(self, model: nn.Module) -> None:
        TorchDispatchMode.__init__(self)
        self.seen: list[Operation] = []
        self._paths = {module: path for path, module in model.named_modules()}
        self._modules: list[str] = []
        self._module_of: dict[int, str] = {}
        """Autograd sequence number -> module of the forward operator."""
        self._beyond: dict[int, bool] = {}
        """Storage -> whether a value beyond the range has entered it."""
        self._infinite: set[int] = set()
        """Storages with intended infinities, or NaN unrelated to the range."""
        self._open = True
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(every_module_heard(self._enter_module, self._leave_module))
        TorchDispatchMode.__enter__(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        TorchDispatchMode.__exit__(self, kind, error, trace)
        self._stack.close()

    def close(self) -> None:
        """Stop recording; later operators are not part of the pass."""
        self._open = False

    def _enter_module(self, module: nn.Module, _inputs: Any) -> None:
        self._modules.append(self._paths.get(module, self._modules[-1] if self._modules else ""))

    def _leave_module(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        if self._modules:
            self._modules.pop()

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and examine its result."""
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if not self._open or name.startswith(("empty", "new_empty")):  # memory without values yet
            return func(*args, **kwargs)
        inputs = list(_tensors((args, kwargs)))
        product = name in PRODUCTS and any(x.dtype in HALVES for x in inputs)
        if product:
            result, wide = _rounded_product(func, name, args, kwargs)
        else:
            result = wide = func(*args, **kwargs)
        backward, module = self._place()
        outputs = list(_tensors(result))
        sources = {_storage(x) for x in inputs}
        if not func._schema.is_mutable and any(_storage(x) in sources for x in outputs):
            return result  # a view
        outputs = [x for x in outputs if x.is_floating_point() and x.numel() and x.layout is torch.strided]
        beyond = any(self._beyond.get(storage, False) for storage in sources)
        meant = bool(sources & self._infinite)
        for output, exact in zip(outputs, _tensors(wide) if product else outputs, strict=False):
            largest, leaves = self._look(func, args, kwargs, inputs, output, exact, meant=meant)
            self.seen.append(
                Operation(name, backward, module, output.dtype, largest, leaves, first=leaves and not beyond)
            )
            self._beyond[_storage(output)] = leaves or beyond
        return result

    def _look(
        self, func: Any, args: Any, kwargs: Any, inputs: list[Tensor], output: Tensor, exact: Tensor, *, meant: bool
    ) -> tuple[float, bool]:
        """The largest magnitude of a result, and whether it leaves the range; clamp it if so."""
        least, most = (float(x) for x in torch.aminmax(exact.detach()))
        key = _storage(output)
        if math.isfinite(least) and math.isfinite(most):
            self._infinite.discard(key)
            largest = magnitude(least, most)
            leaves = output.dtype is torch.float16 and largest >= OVERFLOWS
            if leaves:  # a product computed in fp32, already clamped
                return largest, not (meant or _is_mask(exact))
            return largest, False
        if output.dtype is not torch.float16 or meant or not _finite(inputs, output):
            self._infinite.add(key)
            return _largest_finite(exact), False
        wide = _computed_wide(func, args, kwargs, output)
        if wide is not None and (not bool(wide.isfinite().all()) or _is_mask(wide)):
            self._infinite.add(key)
            return _largest_finite(exact), False
        with torch.no_grad():
            output.copy_(torch.nan_to_num(output, nan=LARGEST) if wide is None else wide.clamp(-LARGEST, LARGEST))
        self._infinite.discard(key)
        return math.inf if wide is None else float(wide.abs().amax()), True

    def _place(self) -> tuple[bool, str]:
        """Whether it is a backward operator, and its module."""
        node = torch._C._current_autograd_node()
        running = self._modules[-1] if self._modules else ""
        # Gradient checkpointing runs forward operators inside a backward pass.
        if node is None or self._modules:
            self._module_of.setdefault(torch._C._autograd._get_sequence_nr() - 1, running)
            return False, running
        return True, self._module_of.get(node._sequence_nr(), "")


def magnitude(least: float, most: float) -> float:
    """The largest magnitude of two extremes, ignoring a mask's large negative values."""
    if least > -NO_ACTIVATION or most >= OVERFLOWS:
        return max(abs(least), abs(most))
    return abs(most) if most > -NO_ACTIVATION else 0.0


def _rounded_product(func: Any, name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The result in half precision, clamped, and in fp32."""
    dtype = next(x.dtype for x in _tensors((args, kwargs)) if x.dtype in HALVES)
    wide = func(*_mapped(args, _up), **_mapped(kwargs, _up))
    limit = torch.finfo(dtype).max
    keeps = name.endswith("attention_for_cpu")  # its second result, sums, is kept in fp32

    def down(tensor: Tensor) -> Tensor:
        return tensor.clamp(-limit, limit).to(dtype) if tensor.dtype is torch.float32 else tensor

    if isinstance(wide, tuple) and keeps:
        return (down(wide[0]), *wide[1:]), wide
    return _mapped(wide, down), wide


def _computed_wide(func: Any, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
    """The same operator in fp32; None if unavailable."""
    if func._schema.is_mutable:
        return None
    kwargs = {name: torch.float32 if value is torch.float16 else value for name, value in kwargs.items()}
    try:
        results = list(_tensors(func(*_mapped(args, _up), **_mapped(kwargs, _up))))
    except (RuntimeError, TypeError, ValueError):
        return None
    return next((x for x in results if x.shape == output.shape and x.dtype is torch.float32), None)


def _is_mask(wide: Tensor) -> bool:
    """Whether all values beyond the range are far below zero, to be ignored by a softmax."""
    below, above = (float(x) for x in torch.aminmax(wide.detach()))
    if above >= OVERFLOWS or below > -NO_ACTIVATION:
        return False
    middling = (wide < -OVERFLOWS) & (wide > -NO_ACTIVATION)
    return not bool(middling.any())


def _finite(inputs: list[Tensor], output: Tensor) -> bool:
    own = _storage(output)
    floats = (x for x in inputs if x.is_floating_point() and x.layout is torch.strided and _storage(x) != own)
    return all(bool(x.isfinite().all()) for x in floats)


def _largest_finite(tensor: Tensor) -> float:
    kept = tensor.detach()[tensor.isfinite()]
    return magnitude(float(kept.amin()), float(kept.amax())) if kept.numel() else 0.0


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for each in tree:
            yield from _tensors(each)
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))


def _mapped(tree: Any, change: Any) -> Any:
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, list | tuple):
        return type(tree)(_mapped(each, change) for each in tree)
    return {name: _mapped(value, change) for name, value in tree.items()} if isinstance(tree, dict) else tree


def _up(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor


def _storage(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without one storage
        return id(tensor)
