"""Import a file with another text, to test a patched copy of a module."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


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
