"""What a notebook's cells have printed, read as the log of a training.

Data that a cell shows is no log: a data frame with missing values says nothing of a training. Only what was printed,
the tracebacks in cells that printed, and results with a loss in them are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby, pairwise

from stayfinite.core.series import RunSeries
from stayfinite.readers.configs.files import as_text, read_content
from stayfinite.readers.configs.literals import parse_json
from stayfinite.readers.configs.tree import Node
from stayfinite.readers.logs.lines import LineSplitter
from stayfinite.readers.logs.text import TextReader

Row = tuple[str, int]
"""A printed line, and the line of the file that it stands on."""


def read_outputs(path: str | os.PathLike[str]) -> list[RunSeries]:
    """The series in a notebook's outputs; empty where no cell has printed a measurement.

    Lines are counted as in the file, where it has one for each of them, else as printed.
    """
    content = read_content(path)
    text = as_text(content.data)
    rows = [] if text is None else list(_printed(parse_json(text)[0]))
    in_file = all(before < after for (_, before), (_, after) in pairwise(rows))
    reader = TextReader(content.source if in_file else f"{content.source} output")
    for number, lines in _blocks(rows, in_file=in_file):
        splitter = LineSplitter()
        reader.lines = number - 1
        reader.feed([*splitter.feed("\n".join(lines).encode("utf-8", "replace")), *splitter.close()])
    reader.close()
    found = reader.series
    for each in found:
        each.lines = len(rows)
    return found if any(each.points_seen for each in found) else []


def _blocks(rows: list[Row], *, in_file: bool) -> Iterator[tuple[int, list[str]]]:
    """Lines that follow one another, with the number of the first."""
    numbered = [(number if in_file else place, line) for place, (line, number) in enumerate(rows, 1)]
    for _, block in groupby(enumerate(numbered), key=lambda item: item[1][0] - item[0]):
        found = [row for _, row in block]
        yield found[0][0], [line for _, line in found]


def _printed(nodes: list[Node]) -> Iterator[Row]:
    for root in nodes:
        for holder in (root, *_entries(root, "worksheets")):  # notebooks of 2014 keep their cells in worksheets
            for cell in _entries(holder, "cells"):
                yield from _printed_by(_entries(cell, "outputs"))


def _printed_by(outputs: list[Node]) -> Iterator[Row]:
    speaks = False
    for output in outputs:
        kind = _text(_entry(output, "output_type"))
        if kind == "stream":
            speaks = True
            yield from _rows(_entry(output, "text"))
        elif kind in ("error", "pyerr") and speaks:
            yield from _rows(_entry(output, "traceback"), whole=True)
        elif kind in ("execute_result", "pyout"):
            rows = list(_rows(_entry(_entry(output, "data"), "text/plain") or _entry(output, "text")))
            if any("loss" in line for line, _ in rows) and _entry(_entry(output, "data"), "text/html") is None:
                yield from rows


def _rows(node: Node | None, *, whole: bool = False) -> Iterator[Row]:
    """The lines of a text or of a list of its parts, which are whole lines or end where they say so."""
    parts = [] if node is None else node.value if isinstance(node.value, list) else [node]
    begun, at = "", 0
    for part in parts:
        text = part.value if isinstance(part.value, str) else ""
        lines = (begun + text + ("\n" if whole and not text.endswith("\n") else "")).split("\n")
        at = at if begun else part.line
        begun = lines.pop()
        for line in lines:
            yield line, at
            at = part.line
    if begun:
        yield begun, at


def _entry(node: Node | None, key: str) -> Node | None:
    found = node.value.get(key) if node is not None and isinstance(node.value, dict) else None
    return found if isinstance(found, Node) else None


def _entries(node: Node, key: str) -> list[Node]:
    inner = _entry(node, key)
    return inner.value if inner is not None and isinstance(inner.value, list) else []


def _text(node: Node | None) -> str:
    return node.value if node is not None and isinstance(node.value, str) else ""
