"""Where a thread of this process is: its stack in words, and whether it moves."""

import linecache
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

INNERMOST = 4
"""Innermost frames that show whether it waits in a collective."""

WORKING = 0.1
"""Share of CPU time above which a thread moves although its stack does not change."""

_LIBRARIES = tuple(f"{Path(path)}/" for path in {*sysconfig.get_paths().values(), str(Path(__file__).parents[2])})


class Motion:
    """Detects whether a thread moves: a new line, or CPU time."""

    def __init__(self, ident: int) -> None:
        self._ident = ident
        self._stack: list[tuple[CodeType, int]] = []
        self._moved = self._looked = time.monotonic()
        self._used = _processor_seconds(ident)

    def look(self) -> float:
        """Seconds without movement."""
        now, used = time.monotonic(), _processor_seconds(self._ident)
        stack = [(frame.f_code, frame.f_lasti) for frame in _frames(sys._current_frames().get(self._ident))]
        if stack != self._stack or used - self._used > WORKING * (now - self._looked):
            self._moved = now
        self._stack, self._looked, self._used = stack, now, used
        return now - self._moved


def where_is(ident: int) -> tuple[str, bool]:
    """Source line of a thread with its text, and whether it waits in a collective."""
    frames = list(_frames(sys._current_frames().get(ident)))
    if not frames:
        return "", False
    waits = any(_collective(frame.f_code) for frame in frames[:INNERMOST])
    own = next((frame for frame in frames if not frame.f_code.co_filename.startswith(_LIBRARIES)), frames[0])
    return _in_words(own), waits


def all_stacks(first: int) -> str:
    """Tracebacks of all threads, starting with ``first``."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    current = sys._current_frames()
    order = sorted(current, key=lambda ident: (ident != first, ident))
    parts = []
    for ident in order:
        if ident == threading.get_ident():
            continue  # the watchdog itself
        shown = "".join(traceback.format_stack(current[ident]))
        parts.append(f"thread {names.get(ident, ident)}:\n{shown}")
    return "\n".join(parts)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """From the innermost outward."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _collective(code: CodeType) -> bool:
    return "/torch/distributed/" in code.co_filename or code.co_name == "_engine_run_backward"


def _in_words(frame: FrameType) -> str:
    path, number = Path(frame.f_code.co_filename), frame.f_lineno
    text = linecache.getline(str(path), number).strip()
    return f"{path.name}:{number} in {frame.f_code.co_name}" + (f": `{text}`" if text else "")


def _processor_seconds(ident: int) -> float:
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except (AttributeError, OSError):
        return 0.0  # not available everywhere; then only the stack counts
