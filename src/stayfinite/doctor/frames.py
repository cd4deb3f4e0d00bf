"""Which frames of a call stack belong to the user."""

from __future__ import annotations

import runpy
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import FrameType

from stayfinite.core.source_lines import line_in_words

OWN = str(Path(__file__).resolve().parents[1])
LIBRARY = tuple(
    dict.fromkeys(
        str(Path(place)) for key in ("stdlib", "platstdlib") if (place := sysconfig.get_paths().get(key)) is not None
    )
)
PACKAGES = ("/site-packages/", "/dist-packages/", "\\site-packages\\")
RUNNERS = ("<frozen runpy>", runpy.__file__, str(Path(OWN) / "integrations" / "scripts.py"))
"""Files that run the program; frames above them do not belong to it."""
DEEPEST = 60
"""Innermost frames to look at."""


NOTEBOOKS: dict[str, list[tuple[int, int]]] = {}
"""By notebook file: the cell and line of each of its lines."""


class Home:
    """Directory of the user's program, if it is an installed package."""

    folder = ""


@lru_cache(maxsize=4096)
def _is_users(filename: str, home: str) -> bool:
    made_up = filename.startswith("<") and not filename.startswith(("<ipython", "<notebook"))
    if made_up or filename.startswith(OWN):
        return False
    if home and filename.startswith(home):
        return True
    return not any(part in filename for part in PACKAGES) and not filename.startswith(LIBRARY)


def is_users(filename: str) -> bool:
    """Whether the file is the user's, not a library's, Python's or ours."""
    return _is_users(filename, Home.folder)


def user_frames(start: FrameType | None = None) -> list[FrameType]:
    """The user's frames, innermost first."""
    return list(_user_frames(start if start is not None else sys._getframe(1)))


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(DEEPEST):
        # Frames above the runner are not the program's.
        if frame is None or frame.f_code.co_filename in RUNNERS:
            return
        if is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def place_here() -> tuple[str, int]:
    """File and line of the innermost user frame; ("", 0) if there is none."""
    return next(((each.f_code.co_filename, each.f_lineno) for each in _user_frames(sys._getframe(1))), ("", 0))


def short(place: tuple[str, int]) -> str:
    """`train.py:41`, or `train.ipynb, cell 3, line 4`."""
    cells = NOTEBOOKS.get(place[0])
    if cells is not None and 0 < place[1] <= len(cells):
        cell, line = cells[place[1] - 1]
        return f"{Path(place[0]).stem}, cell {cell}, line {line}"
    return line_in_words(*place) if place[0] else ""
