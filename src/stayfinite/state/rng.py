"""Random number generators of a process: python, numpy if loaded, torch on the CPU and all CUDA devices."""

from __future__ import annotations

import ctypes
import importlib
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import StateError


def capture_rng(numpy_state: Callable[[Any], tuple[Any, ...]] | None = None) -> dict[str, Any]:
    """State of every generator as numbers and bytes. No device sync.

    Arguments:
        numpy_state: a faster way to read numpy's state.
    """
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    devices = range(torch.cuda.device_count()) if cuda else ()
    return {
        "python": random.getstate(),
        "numpy": None if numpy is None else (numpy_state or read_numpy)(numpy),
        "torch": _to_bytes(torch.get_rng_state()),
        "cuda": [_to_bytes(torch.cuda.get_rng_state(device)) for device in devices],
    }


def restore_rng(state: dict[str, Any]) -> None:
    """Restore every generator, or none if the state does not fit.

    Generators not in the state are left unchanged: numpy's if it was not loaded, those of CUDA devices that the other
    machine did not have.

    Raises:
        StateError: the state is damaged or from other kinds of generators.
    """
    before = capture_rng()
    try:
        _restore(state)
    except (TypeError, ValueError, LookupError, RuntimeError) as error:
        _restore(before)
        raise StateError(
            f"cannot restore the random states: {type(error).__name__}: {error}",
            fix="resume with the same versions of python, numpy and torch, or without random states",
        ) from error


def _restore(state: dict[str, Any]) -> None:
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(_to_tensor(state["torch"]))
    if state.get("numpy") is not None:
        numpy = importlib.import_module("numpy")
        kind, words, *rest = state["numpy"]
        numpy.random.set_state((kind, numpy.frombuffer(words, dtype=numpy.uint32), *rest))
    if state.get("cuda") and torch.cuda.is_available():
        for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(_to_tensor(saved), device)


def read_numpy(numpy: Any) -> tuple[Any, ...]:
    """State of numpy's global generator."""
    kind, words, *rest = numpy.random.get_state(legacy=True)
    return (kind, words.tobytes(), *rest)


def _to_bytes(state: Tensor) -> bytes:
    state = state.contiguous()
    return ctypes.string_at(state.data_ptr(), state.numel())


def _to_tensor(state: bytes) -> Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


MERSENNE_BYTES = 625 * 4
"""The generator's words and its position."""


class RngMemory:
    """Like ``capture_rng``, but reads numpy only if its generator has moved.

    A number that ``numpy.random.randn`` drew ahead and cached is not checked: if nothing else moved, it may be
    outdated.
    """

    def __init__(self) -> None:
        self._mark: tuple[int, bytes] | None = None
        self._known: tuple[Any, ...] = ()

    def capture(self) -> dict[str, Any]:
        return capture_rng(self._numpy)

    def _numpy(self, numpy: Any) -> tuple[Any, ...]:
        generator: Any = getattr(getattr(numpy.random.mtrand, "_rand", None), "_bit_generator", None)
        if type(generator).__name__ != "MT19937":
            return read_numpy(numpy)
        address = generator.ctypes.state_address
        mark = (address, ctypes.string_at(address, MERSENNE_BYTES))
        if mark != self._mark:
            self._mark, self._known = mark, read_numpy(numpy)
        return self._known
