"""Contexts that change exactly one thing while a step runs, and restore it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from stayfinite.autopsy.steps.batch_parts import with_changed
from stayfinite.state.parts import holding


def of_this_step() -> Callable[[], bool]:
    """Return a test whether the current thread belongs to the caller's step: its own, or one of autograd's."""
    owner = threading.get_ident()

    def mine() -> bool:
        here = threading.get_ident()
        if here == owner:
            return True
        # Autograd's threads are unknown to Python, or dummies.
        return not any(t.ident == here and not isinstance(t, threading._DummyThread) for t in threading.enumerate())

    return mine


class FunctionChange(TorchFunctionMode):
    """Every torch function goes through ``call``."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function, or a replacement."""
        return func(*args, **kwargs)


HALVES = (torch.float16, torch.bfloat16)


@contextmanager
def replaced(owner: Any, **others: Any) -> Iterator[None]:
    """Context in which attributes of an object, a class or a module have other values."""
    kept = {name: vars(owner)[name] for name in others}
    try:
        for name, other in others.items():
            setattr(owner, name, other)
        yield
    finally:
        for name, before in kept.items():
            setattr(owner, name, before)


def autocast_as(dtype: torch.dtype | None) -> AbstractContextManager[None]:
    """Every autocast in the step uses this dtype; None disables it."""

    def change(entered: Any) -> None:
        if dtype is None:
            entered._enabled = False
        else:
            entered.fast_dtype = dtype

    return _autocast_changed(change)


def own_autocast_ignored() -> AbstractContextManager[None]:
    """Autocasts in the step have no effect, unless they disable autocast."""

    def change(entered: Any) -> None:
        if entered._enabled:
            entered._enabled = torch.is_autocast_enabled(entered.device)
            entered.fast_dtype = torch.get_autocast_dtype(entered.device)

    return _autocast_changed(change)


def _autocast_changed(change: Callable[[Any], None]) -> AbstractContextManager[None]:
    entering: Any = torch.amp.autocast.__enter__
    mine = of_this_step()

    def enter(self: Any) -> Any:
        if not mine():
            return entering(self)
        kept = self.fast_dtype, self._enabled
        change(self)
        try:
            return entering(self)
        finally:
            self.fast_dtype, self._enabled = kept

    return replaced(torch.amp.autocast, __enter__=enter)


def half_weights_as(model: nn.Module, dtype: torch.dtype) -> AbstractContextManager[None]:
    """Half-precision parameters and buffers use this dtype instead."""
    halves = [tensor for tensor in [*model.parameters(), *model.buffers()] if tensor.dtype in HALVES]
    return _other_data((tensor, tensor.data.to(dtype)) for tensor in halves)


def weights_from(model: nn.Module, weights: Mapping[str, Tensor]) -> AbstractContextManager[None]:
    """Replace parameters and buffers by name; others stay."""
    named = [*model.named_parameters(), *model.named_buffers()]
    changed = [(tensor, weights[name]) for name, tensor in named if name in weights]
    # A copy: the forward pass writes to running statistics, and these may be a snapshot's memory.
    return _other_data(
        (tensor, other.to(device=tensor.device, dtype=tensor.dtype, copy=True))
        for tensor, other in changed
        if other.shape == tensor.shape
    )


@contextmanager
def _other_data(pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Context in which these tensors have other data; their gradients are dropped at the end."""
    kept: list[tuple[Tensor, Tensor]] = []
    try:
        for tensor, other in pairs:
            kept.append((tensor, tensor.data))
            tensor.grad = None
            tensor.data = other
        yield
    finally:
        for tensor, data in kept:
            tensor.grad = None
            tensor.data = data


def mended(tensor: Tensor) -> AbstractContextManager[None]:
    """Non-finite values in a tensor become 0."""
    return holding([(tensor, torch.nan_to_num(tensor.detach(), nan=0.0, posinf=0.0, neginf=0.0))])


@contextmanager
def module_in_fp32(model: nn.Module, path: str) -> Iterator[None]:
    """One module computes in fp32: inputs and half weights are cast, and autocast is off inside."""
    module = model.get_submodule(path)
    device = next((tensor.device.type for tensor in [*model.parameters(), *model.buffers()]), "cpu")
    computing = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(in_full, (args, kwargs))
        with torch.amp.autocast(device, enabled=False):
            return computing(*args, **kwargs)

    with other_forwards({module: forward}), half_weights_as(module, torch.float32):
        yield


@contextmanager
def other_forwards(forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Replace the forward functions of these modules."""
    kept = [(vars(module), vars(module).get("forward")) for module in forwards]
    try:
        for module, forward in forwards.items():
            vars(module)["forward"] = forward
        yield
    finally:
        for own, before in kept:
            if before is None:
                own.pop("forward", None)
            else:
                own["forward"] = before


def math_attention() -> AbstractContextManager[None]:
    """Scaled dot-product attention with the math kernel."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """A transformers model uses its eager attention."""
    kept = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(kept)


def eager() -> AbstractContextManager[Any]:
    """Compiled functions run in eager mode."""
    compiles = "torch._dynamo" in sys.modules
    return torch.compiler.set_stance("force_eager") if compiles else nullcontext()


@contextmanager
def no_dropout(model: nn.Module) -> Iterator[None]:
    """Disable dropout, in modules and functions."""
    names = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")

    def through(input: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        return input

    with ExitStack() as stack:
        stack.enter_context(replaced(torch.nn.functional, **dict.fromkeys(names, through)))
        for module in model.modules():
            if "Dropout" in type(module).__name__:
                stack.enter_context(replaced(module, training=False))
        yield


class CastsAs(FunctionChange):
    """Explicit casts to fp16, such as `x.half()`, use this dtype instead."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function, with another dtype instead of fp16."""
        if func is torch.Tensor.half:
            return args[0].to(self._dtype)
        if any(arg is torch.float16 for arg in (*args, *kwargs.values())):
            args = tuple(self._dtype if arg is torch.float16 else arg for arg in args)
            kwargs = {name: self._dtype if value is torch.float16 else value for name, value in kwargs.items()}
        return func(*args, **kwargs)


def finite_inputs(batch: Any) -> Any:
    """The batch with NaN and infinity replaced by 0."""

    def mend(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return torch.where(leaf.isfinite(), leaf, torch.zeros((), dtype=leaf.dtype, device=leaf.device))
        return leaf

    return with_changed(batch, mend)


def in_full_precision(batch: Any) -> Any:
    """The batch with half-precision items in fp32."""
    return with_changed(batch, in_full)


def in_full(leaf: Any) -> Any:
    """A half-precision tensor in fp32; anything else unchanged."""
    return leaf.float() if isinstance(leaf, Tensor) and leaf.dtype in HALVES else leaf


def derived_backward(function: str) -> AbstractContextManager[None]:
    """Differentiate a custom autograd function by autograd instead of its own backward."""
    kind: Any = torch.autograd.Function
    own = vars(kind)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.__name__ != function:
            return own.__get__(None, cls)(*args, **kwargs)
        if cls.setup_context is not kind.setup_context:
            return cls.forward(*args, **kwargs)
        return cls.forward(_Forgetful(args), *args, **kwargs)

    return replaced(kind, apply=classmethod(apply))


class _Forgetful:
    """Context of a custom function that stores nothing."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.needs_input_grad = tuple(isinstance(arg, Tensor) and arg.requires_grad for arg in args)

    def save_for_backward(self, *_tensors: Any) -> None:
        """Do nothing."""

    mark_dirty = mark_non_differentiable = set_materialize_grads = save_for_forward = save_for_backward
