"""References to source lines for messages."""

from __future__ import annotations

import linecache
import sys
from pathlib import PurePath
from typing import Any

MOST = 100
"""Longest quote of a source line, in characters."""


def line_in_words(file: str, line: int) -> str:
    """`train.py:41`; in a notebook `In[3], line 4`, since cells are in temporary files."""
    path = PurePath(file)
    if path.parent.name.startswith("ipykernel_") or file.startswith("<ipython-input"):
        return f"{_cell(file)}, line {line}"
    return f"{path.name}:{line}"


def quoted_line(file: str, line: int) -> str:
    """`train.py:41: ` and the source of that line, if readable."""
    source = linecache.getline(file, line).strip()
    quoted = f": `{source if len(source) <= MOST else source[: MOST - 3] + '...'}`" if source else ""
    return f"{line_in_words(file, line)}{quoted}"


def _cell(file: str) -> str:
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    try:
        named = shell.compile.format_code_name(file)
    except AttributeError:  # another process, or another way of naming cells
        named = None
    return str(named[1]) if named else "a notebook cell"
