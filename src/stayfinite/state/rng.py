"""The random number generators of a process: python, numpy if it is in use, torch on the CPU and every CUDA device."""

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
    """Where every generator stands, as numbers and bytes. Does not wait for a device.

    Arguments:
        numpy_state: asks numpy for its state in another way; numpy itself takes its time.
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
    """Set every generator to where it stood. All of them, or none if the state does not fit.

    Generators that the state does not tell of are left as they are: numpy's if it was not in use, those of CUDA devices
    that the other machine did not have.

    Raises:
        StateError: the state is damaged or comes from generators of another kind.
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
    """Where numpy's global generator stands."""
    kind, words, *rest = numpy.random.get_state(legacy=True)
    return (kind, words.tobytes(), *rest)


def _to_bytes(state: Tensor) -> bytes:
    state = state.contiguous()
    return ctypes.string_at(state.data_ptr(), state.numel())


def _to_tensor(state: bytes) -> Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
