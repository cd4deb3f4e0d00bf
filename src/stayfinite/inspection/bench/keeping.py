"""Save all state of a training before the first probe, and restore it after each.

Unlike `state.capture`, which is for states on disk, this gives the same objects their own values back.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.state.rng import capture_rng, restore_rng

Switch = tuple[Callable[[], Any], Callable[[Any], object]]
"""How a switch of torch is read, and how it is set."""


def _set_mkldnn(on: bool) -> None:
    mkldnn: Any = torch.backends.mkldnn
    if bool(mkldnn.enabled) is not on:
        mkldnn.enabled = on


SWITCHES: dict[str, Switch] = {
    "grad": (torch.is_grad_enabled, torch.set_grad_enabled),
    "autocast cpu": (partial(torch.is_autocast_enabled, "cpu"), partial(torch.set_autocast_enabled, "cpu")),
    "autocast cuda": (partial(torch.is_autocast_enabled, "cuda"), partial(torch.set_autocast_enabled, "cuda")),
    "dtype cpu": (partial(torch.get_autocast_dtype, "cpu"), partial(torch.set_autocast_dtype, "cpu")),
    "dtype cuda": (partial(torch.get_autocast_dtype, "cuda"), partial(torch.set_autocast_dtype, "cuda")),
    "cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "matmul": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "anomaly": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda before: torch.set_anomaly_enabled(*before),
    ),
    "benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        lambda on: setattr(torch.backends.cudnn, "benchmark", on),
    ),
    "mkldnn": (lambda: bool(torch.backends.mkldnn.enabled), _set_mkldnn),
}


def capture_switches() -> dict[str, Any]:
    """Return their values."""
    return {name: read() for name, (read, _) in SWITCHES.items()}


def restore_switches(switches: dict[str, Any]) -> None:
    """Set those that have changed to earlier values."""
    for name, (read, write) in SWITCHES.items():
        if read() != switches[name]:
            write(switches[name])


LARGE = 8 << 30
"""Bytes of frozen weights above which they are not copied: nothing writes to them, and memory may be short."""

Undo = Callable[[], None]


class Keeping:
    """Weights, gradients, buffers, modes, hooks, moments, groups, scaler, generators and switches of a training.

    Arguments:
        model: with its parameters, buffers and module attributes.
        parts: optimizer, scaler and others whose attributes are restored; tensors by value.
        generators: beyond those of the process, such as a loader's.
    """

    def __init__(self, model: nn.Module, *parts: Any, generators: tuple[torch.Generator, ...] = ()) -> None:
        self.copies: dict[int, Tensor] = {}
        """Copies of parameters, by ``id``."""
        self._undo: list[Undo] = []
        self._quick: list[Undo] = []
        optimizers = [part for part in parts if hasattr(part, "param_groups")]
        strangers = [p for each in optimizers for group in each.param_groups for p in group["params"]]
        self._keep_parameters([*model.parameters(), *strangers])
        self._keep_modules(model)
        for part in parts:
            self._undo.append(_saved(vars(part), set()))
        self._generators = [(generator, generator.get_state()) for generator in generators]
        self._rng = capture_rng()
        self._switches = capture_switches()

    @property
    def gradients_on(self) -> bool:
        """Whether gradients were enabled at the start."""
        return bool(self._switches["grad"])

    def put_back(self, *, values: bool = True) -> None:
        """Restore everything. ``values=False`` skips parameters and optimizer state: faster, enough without steps."""
        restore_switches(self._switches)
        with torch.no_grad():
            for undo in reversed([*self._quick, *self._undo] if values else self._quick):
                undo()
        restore_rng(self._rng)
        for generator, state in self._generators:
            generator.set_state(state)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo everything that happens within."""
        try:
            yield
        finally:
            self.put_back()

    @contextmanager
    def tidied(self) -> Iterator[None]:
        """Undo the side effects of a pass; everything if it fails."""
        try:
            yield
        except BaseException:
            self.put_back()
            raise
        self.put_back(values=False)

    def _keep_parameters(self, parameters: list[Tensor]) -> None:
        frozen = sum(p.numel() * p.element_size() for p in parameters if not p.requires_grad)
        for p in {id(p): p for p in parameters}.values():
            self._quick.append(_kept_switches(p))
            if p.requires_grad or frozen <= LARGE:
                self.copies[id(p)] = _copy(p.data)
                self._undo.append(_kept_parameter(p, p.data, self.copies[id(p)]))

    def _keep_modules(self, model: nn.Module) -> None:
        for module in model.modules():
            for buffer in module._buffers.values():
                if buffer is not None:
                    self._quick.append(_kept_values(buffer, _copy(buffer)))
            names = vars(module)
            # Parameters, buffers, submodules and hooks are in dicts of the module; switches, counters and caches of its
            # last call are attributes.
            inner = [value for name, value in names.items() if isinstance(value, dict) and name.startswith("_")]
            for own in (names, *inner):
                self._quick.append(_kept_entries(own))


def _kept_parameter(p: Tensor, data: Tensor, values: Tensor) -> Undo:
    def undo() -> None:
        if p.data.data_ptr() != data.data_ptr() or p.data.dtype != data.dtype:
            p.data = data
        _write(p.data, values)

    return undo


def _kept_switches(p: Tensor) -> Undo:
    grad, wanted = p.grad, p.requires_grad
    values = None if grad is None or grad.is_sparse else _copy(grad)

    def undo() -> None:
        if p.requires_grad is not wanted:
            p.requires_grad_(wanted)
        if grad is not None and values is not None:
            _write(grad, values)
        if p.grad is not grad:
            p.grad = grad

    return undo


def _kept_values(tensor: Tensor, values: Tensor) -> Undo:
    return lambda: _write(tensor.detach(), values)


def _kept_entries(entries: dict[Any, Any]) -> Undo:
    before = dict(entries)

    def undo() -> None:
        if len(entries) != len(before) or any(entries.get(key, before) is not value for key, value in before.items()):
            entries.clear()
            entries.update(before)

    return undo


def _saved(value: Any, met: set[int]) -> Undo:
    """A function that restores a value and everything in it; tensors keep their identity."""
    if id(value) in met:
        return lambda: None
    if isinstance(value, nn.Parameter):
        return lambda: None  # saved separately
    met.add(id(value))
    if isinstance(value, Tensor):
        return _kept_values(value, _copy(value.detach()))
    if isinstance(value, dict):
        undo = [_saved(each, met) for each in value.values()]
        return _all_of([*undo, _kept_entries(value)])
    if isinstance(value, list):
        before = list(value)
        undo = [_saved(each, met) for each in value]

        def put_back() -> None:
            if len(value) != len(before) or any(a is not b for a, b in zip(value, before, strict=True)):
                value[:] = before

        return _all_of([*undo, put_back])
    if isinstance(value, tuple):
        return _all_of([_saved(each, met) for each in value])
    if isinstance(value, torch.optim.Optimizer):  # wrapped by another library's optimizer
        return _saved(vars(value), met)
    return lambda: None


def _all_of(undo: list[Undo]) -> Undo:
    def put_back() -> None:
        for each in undo:
            each()

    return put_back


def _copy(tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        return tensor
    copy = tensor.detach().clone()
    return copy.cpu() if copy.is_cuda else copy


def _write(tensor: Tensor, values: Tensor) -> None:
    """Write only if different: weights may be memory-mapped, and NaN is not equal to itself."""
    if tensor.is_meta or tensor.shape != values.shape:
        return
    if not tensor.is_cuda and torch.equal(tensor, values):
        return
    tensor.copy_(values)
