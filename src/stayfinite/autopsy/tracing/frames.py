"""Find the source line that called an operator."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

import torch

from stayfinite.autopsy.tracing.events import Place

_TORCH = str(Path(torch.__file__).parent)
_OWN = tuple(str(Path(__file__).parents[2] / room) for room in ("autopsy", "inspection", "doctor"))
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")})

ENGINE = "_engine_run_backward"
"""The torch function through which every backward pass starts."""

DEEPEST = 200
"""Most frames to inspect."""


@lru_cache(maxsize=4096)
def _kind(filename: str) -> int:
    """0: torch or stayfinite; 1: an installed package; 2: the user's code."""
    if filename.startswith((_TORCH, *_OWN, "<")) and not filename.startswith(("<stdin", "<ipython", "<string")):
        return 0
    return 1 if filename.startswith(_INSTALLED) or "site-packages" in filename else 2


Places = tuple[Place | None, Place | None]
"""Innermost line outside torch, and innermost line outside installed packages."""

NOWHERE: Places = (None, None)


def places() -> Places:
    """Source lines of the caller's caller."""
    return Lines().above(sys._getframe(2))


class Lines:
    """Finds the lines of many calls, with a cache."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, Place | None, CodeType]] = {}
        """(code id, instruction) -> kind, line, and the code, kept alive so its id stays valid."""

    def above(
        self, frame: FrameType | None, *, backward: bool = False, until: int = 0, then: Places = NOWHERE
    ) -> Places:
        """Lines of a frame and its callers.

        Arguments:
            backward: stop where autograd was entered.
            until: id of a frame at which to stop and use ``then``.
            then: the known result for ``until``.
        """
        nearest: Place | None = None
        for _ in range(DEEPEST):
            if frame is None:
                break
            if id(frame) == until:
                return (nearest or then[0]), then[1]
            code = frame.f_code
            if backward and code.co_name == ENGINE:
                break
            key = (id(code), frame.f_lasti)
            known = self._known.get(key)
            if known is None:
                kind = _kind(code.co_filename)
                place = Place(code.co_filename, frame.f_lineno, code.co_qualname) if kind else None
                known = self._known[key] = (kind, place, code)
            if known[0]:
                nearest = nearest or known[1]
                if known[0] == 2:
                    return nearest, known[1]
            frame = frame.f_back
        return nearest, None
