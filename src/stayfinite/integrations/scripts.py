"""Running somebody's script as if it had been started by itself, and keeping what it prints."""

from __future__ import annotations

import io
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

MOST_CHARACTERS = 64 << 20
"""Of the output that are kept."""


def run_script(script: Path, arguments: Sequence[str]) -> int:
    """Run it as ``__main__`` with its own arguments; returns its exit code. An error is printed as ever.

    Its directory leads ``sys.path``, as Python does it. Afterwards arguments, path, hooks and the current directory are
    as they were.
    """
    argv, path, hook, here = sys.argv, list(sys.path), sys.excepthook, Path.cwd()
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as ended:
        return _code(ended)
    except BaseException as error:
        _print_without_us(error)
        return 130 if isinstance(error, KeyboardInterrupt) else int(getattr(error, "exit_code", 1))
    finally:
        sys.argv, sys.excepthook = argv, hook
        sys.path[:] = path
        os.chdir(here)
    return 0


@contextmanager
def kept_output(place: Path, *, to_stderr: bool) -> Iterator[None]:
    """Within, what is printed goes to a file too.

    Arguments:
        place: the file.
        to_stderr: what is meant for standard output goes to standard error, so that the former stays free.
    """
    out, err = sys.stdout, sys.stderr
    with place.open("w", encoding="utf-8", errors="backslashreplace") as file:
        copy = _Limited(file)
        sys.stdout, sys.stderr = _Tee(err if to_stderr else out, copy), _Tee(err, copy)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = out, err


def _code(ended: SystemExit) -> int:
    if ended.code is None:
        return 0
    if isinstance(ended.code, int):
        return ended.code
    sys.stderr.write(f"{ended.code}\n")
    return 1


def _print_without_us(error: BaseException) -> None:
    """The traceback from the script's first line on; a script that cannot be compiled has none."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") != "__main__":
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


class _Limited:
    def __init__(self, file: TextIO) -> None:
        self._file, self._left = file, MOST_CHARACTERS

    def write(self, text: str) -> None:
        if self._left > 0 and not self._file.closed:
            self._left -= len(text)
            self._file.write(text)


class _Tee(io.TextIOBase):
    """A stream that is also written to a file; everything else is the stream's own."""

    def __init__(self, stream: Any, copy: _Limited) -> None:
        self._stream, self._copy = stream, copy

    def write(self, text: str) -> int:
        self._copy.write(text)
        self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return int(self._stream.fileno())

    def isatty(self) -> bool:
        return bool(self._stream.isatty())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(self._stream.encoding)

    @property
    def buffer(self) -> Any:
        return self._stream.buffer
