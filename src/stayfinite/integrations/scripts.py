"""Run a user's script as if started directly, and keep its output."""

import io
import json
import linecache
import os
import re
import runpy
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, TextIO

from stayfinite.doctor.stopping import ProgramStopped


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        """Compile the given text; the cache belongs to the file's own text."""
        code: CodeType = self.source_to_code(self._text.encode(), self.path)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, file: Path, text: str) -> None:
        self._file, self._text = file, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or Path(spec.origin).resolve() != self._file:
            return None
        spec.loader = _Loader(fullname, spec.origin, self._text)
        linecache.cache[spec.origin] = (len(self._text), None, self._text.splitlines(keepends=True), spec.origin)
        return spec


@contextmanager
def imported_as(file: Path, text: str) -> Iterator[None]:
    """Context in which this file's module is imported with this text."""
    finder = _Finder(file.resolve(), text)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


MOST_CHARACTERS = 64 << 20
"""Most characters of output to keep."""


def run_script(script: Path, arguments: Sequence[str], text: str | None = None) -> int:
    """Run a script as ``__main__`` with its own arguments; return its exit code. Errors are printed as usual.

    Its directory comes first in ``sys.path``, as in Python. Arguments, path, hooks and current directory are restored
    afterwards.

    Arguments:
        text: run instead of the file's content, under its name: a patched copy, or a notebook's cells.
    """
    return _run(str(script), arguments, str(script.resolve().parent), lambda: _run_text(script, text))


def run_module(name: str, arguments: Sequence[str]) -> int:
    """Run a module, as ``python -m name``."""
    return _run(name, arguments, str(Path.cwd()), lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))


def text_of_notebook(notebook: Path) -> tuple[str, list[tuple[int, int]]]:
    """Code cells of a notebook as one text, and the cell and line of each line.

    Magics and shell lines are left out. Code cells are counted from 1.
    """
    cells = json.loads(notebook.read_text(encoding="utf-8")).get("cells", [])
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    for number, cell in enumerate((each for each in cells if each.get("cell_type") == "code"), start=1):
        source = cell.get("source", "")
        code = ("".join(source) if isinstance(source, list) else str(source)).splitlines()
        if code and code[0].lstrip().startswith("%%"):
            continue
        lines += [
            f"{line[: len(line) - len(line.lstrip())]}pass  # {line.strip()}"
            if line.lstrip().startswith(("%", "!"))
            else line
            for line in code
        ]
        lines.append("")
        places += [(number, line) for line in range(1, len(code) + 2)]
    return "\n".join(lines), places


def _run_text(script: Path, text: str | None) -> None:
    if text is None:
        runpy.run_path(str(script), run_name="__main__")
        return
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    before = sys.modules.get("__main__")
    sys.modules["__main__"] = main
    linecache.cache[str(script)] = (len(text), None, text.splitlines(keepends=True), str(script))
    try:
        exec(compile(text, str(script), "exec"), main.__dict__)
    finally:
        if before is not None:
            sys.modules["__main__"] = before


def _run(name: str, arguments: Sequence[str], folder: str, start: Callable[[], Any]) -> int:
    argv, path, hook, here = sys.argv, list(sys.path), sys.excepthook, Path.cwd()
    sys.argv = [name, *arguments]
    sys.path.insert(0, folder)
    try:
        start()
    except SystemExit as ended:
        return _code(ended)
    except ProgramStopped:
        return 0
    except BaseException as error:
        _print_without_us(error)
        return 130 if isinstance(error, KeyboardInterrupt) else int(getattr(error, "exit_code", 1))
    finally:
        sys.argv, sys.excepthook = argv, hook
        sys.path[:] = path
        os.chdir(here)
    return 0


@contextmanager
def kept_output(place: Path, *, to_stderr: bool, hear: Callable[[str], None] | None = None) -> Iterator[None]:
    """Context in which output is also written to a file.

    Arguments:
        to_stderr: send stdout to stderr, so stdout stays free.
        hear: called with each complete line.
    """
    out, err = sys.stdout, sys.stderr
    with place.open("w", encoding="utf-8", errors="backslashreplace") as file:
        copy = _Limited(file, hear)
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
    """Print the traceback from the script's first line on, without our frames; a syntax error has none."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        each.__traceback__ = _without_us(each.__traceback__)
        each = each.__cause__ or each.__context__
    traceback.print_exception(type(error), error, error.__traceback__)


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    own = str(Path(__file__).resolve().parents[1])
    kept: list[TracebackType] = []
    while trace is not None:
        kept.append(trace)
        trace = trace.tb_next
    runner = ("<frozen runpy>", runpy.__file__)
    theirs = [
        each for each in kept
        if not each.tb_frame.f_code.co_filename.startswith(own) and each.tb_frame.f_code.co_filename not in runner
    ]  # fmt: skip
    rebuilt: TracebackType | None = None
    for each in reversed(theirs):
        rebuilt = TracebackType(rebuilt, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return rebuilt


class _Limited:
    def __init__(self, file: TextIO, hear: Callable[[str], None] | None = None) -> None:
        self._file, self._left, self._hear, self._line = file, MOST_CHARACTERS, hear, ""

    def write(self, text: str) -> None:
        if self._left > 0 and not self._file.closed:
            self._left -= len(text)
            self._file.write(text)
            if self._hear is not None:
                *whole, self._line = re.split(r"[\r\n]", self._line + text)
                for line in whole:
                    self._hear(line)


class _Tee(io.TextIOBase):
    """A stream that is also written to a file."""

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
