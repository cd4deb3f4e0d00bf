"""Which line of a program an operator was called from."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

import torch

from stayfinite.autopsy.events import Place

_TORCH = str(Path(torch.__file__).parent)
_OWN = tuple(str(Path(__file__).parent.parent / room) for room in ("autopsy", "inspection"))
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")})

ENGINE = "_engine_run_backward"
"""The function of torch through which every backward pass is entered."""

DEEPEST = 200
"""Frames that are looked at."""


@lru_cache(maxsize=4096)
def _kind(filename: str) -> int:
    """0: torch's own or ours; 1: an installed package; 2: the user's."""
    if filename.startswith((_TORCH, *_OWN, "<")) and not filename.startswith(("<stdin", "<ipython", "<string")):
        return 0
    return 1 if filename.startswith(_INSTALLED) or "site-packages" in filename else 2


def places(*, backward: bool = False) -> tuple[Place | None, Place | None]:
    """The innermost line outside torch, and the innermost that belongs to no installed package.

    In backward only lines that autograd itself has called count: a hook, or the backward of a custom function.
    """
    frame = sys._getframe(2)
    nearest: Place | None = None
    for _ in range(DEEPEST):
        if frame is None:
            break
        if backward and frame.f_code.co_name == ENGINE:
            break
        kind = _kind(frame.f_code.co_filename)
        if kind:
            place = Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
            if nearest is None:
                nearest = place
            if kind == 2:
                return nearest, place
        following = frame.f_back
        if following is None:
            break
        frame = following
    return nearest, None
