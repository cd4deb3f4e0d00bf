"""Capture generator states at every step in a few microseconds.

numpy takes longer than all others together, and in most trainings its generator does not move.
"""

from __future__ import annotations

import ctypes
from typing import Any

from stayfinite.state.rng import capture_rng, read_numpy

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
