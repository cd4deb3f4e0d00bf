"""Detect the kind of a file from its name and first characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath

from stayfinite.core.settings import Settings

Reader = Callable[[str, str, str], Settings]
"""``read(kind, text, source)`` reads a text of a known kind; used for files that contain other files."""

_BY_SUFFIX = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".json5": "json",
    ".jsonc": "json",
    ".toml": "toml",
    ".ini": "ini",
    ".cfg": "ini",
    ".conf": "ini",
    ".py": "script",
    ".ipynb": "notebook",
    ".sh": "shell",
    ".bash": "shell",
    ".zsh": "shell",
    ".slurm": "shell",
    ".sbatch": "shell",
    ".bin": "pickle",
    ".pkl": "pickle",
    ".pickle": "pickle",
    ".pt": "pickle",
    ".pth": "pickle",
    ".ckpt": "pickle",
}
_SHELL = re.compile(rb"#!.*\b(?:ba|z|k|da)?sh\b")
_PYTHON = re.compile(rb"#!.*\bpython")
_STATEMENT = re.compile(r"^(?:import [\w.]+|from [\w.]+ import |def \w+\(.*|class \w+.*:|if __name__\b)", re.MULTILINE)


def kind_of(name: str, head: bytes) -> str:
    """Return `yaml`, `json`, `toml`, `ini`, `script`, `notebook`, `shell`, `pickle` or `notes`."""
    if head.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return "pickle"
    if _SHELL.match(head):
        return "shell"
    if _PYTHON.match(head):
        return "script"
    suffix = PurePath(name).suffix.lower()
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{") and re.match(rb"\{\s*(?:[\"'}]|//|/\*|\Z)", start):
        return "notebook" if b'"cells"' in head and b'"cell_type"' in head else "json"
    if start.startswith((b"---\n", b"%YAML")):
        return "yaml"
    if len(_STATEMENT.findall(head.decode("latin-1"))) >= 2:
        return "script"
    return "notes"
