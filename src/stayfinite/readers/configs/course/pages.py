"""The modules beside a script that it imports, as further pages of one program: each has its own range of lines."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

PAGE = 1_000_000
"""More lines than a file has."""
Find = Callable[[str, int, str], tuple[str, ast.Module] | None]
"""``find(module, level, file)``: path and tree of what `from ..module import x` in this file means."""


class Pages:
    """A script, and all modules beside it that it imports."""

    def __init__(self, tree: ast.Module, find: Find | None = None) -> None:
        self._find = find
        self.files = [""]
        self.trees = [tree]
        """That of each file; the first is the script."""
        self.inside: set[ast.AST] = set()
        """The imports of these modules."""
        self._known: dict[tuple[str, int, str], int] = {}
        for place, each in enumerate(self.trees):  # which grows on the way
            self._collect(each, self.files[place])

    def _collect(self, tree: ast.Module, file: str) -> None:
        for node in ast.walk(tree) if self._find is not None else ():
            found = [self.page(*each, file) for each in imports_of(node)]
            if found and all(found):
                self.inside.add(node)

    def page(self, module: str, level: int, file: str) -> int:
        """The page of a module as it is imported in a file; 0 if it is none of them."""
        asked = (module, level, file)
        if asked not in self._known:
            found = self._find(*asked) if self._find is not None else None
            self._known[asked] = 0 if found is None else self._added(*found)
        return self._known[asked]

    def _added(self, path: str, tree: ast.Module) -> int:
        if path not in self.files:
            ast.increment_lineno(tree, PAGE * len(self.files))
            self.files.append(path)
            self.trees.append(tree)
        return self.files.index(path)

    def place(self, line: int) -> tuple[str, int]:
        """The file and the line in it; no file for the script."""
        page, inside = divmod(line, PAGE)
        return self.files[page], inside

    @property
    def nodes(self) -> Iterator[ast.AST]:
        """Every node of every page."""
        for each in self.trees:
            yield from ast.walk(each)


def imports_of(node: ast.AST) -> list[tuple[str, int]]:
    """``(module, level)`` of an import."""
    if isinstance(node, ast.Import):
        return [(each.name, 0) for each in node.names]
    return [(node.module or "", node.level)] if isinstance(node, ast.ImportFrom) else []
