"""Detect the kind of a file from its name and first characters, and whether it is a config at all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePath

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Settings
from stayfinite.readers.configs.files import MOST_BYTES

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
_STATEMENT = lazy_regex(r"^(?:import [\w.]+|from [\w.]+ import |def \w+\(.*|class \w+.*:|if __name__\b)", re.MULTILINE)


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


_SUFFIXES = lazy_regex(r"\.(?:ya?ml|json|json5|jsonc|toml|ini|cfg|conf|py|ipynb|sh|bash|slurm|sbatch)")
_NEVER = lazy_regex(
    r"tokenizer\.json|vocab.*\.json|merges\.txt|trainer_state\.json|.*\.index\.json|.*_results\.json|"
    r"added_tokens\.json|"
    r"special_tokens_map\.json|run\.json|manifest\.json|state\.json|ledger\.json|autopsy\.json|incident\.json|"
    r"dataset_infos?\.json|package(-lock)?\.json|requirements.*\.txt|label\.json|conftest\.py|setup\.(py|cfg)|"
    r"README.*|LICENSE.*|dict\..*\.txt|.*\.jsonl|.*\.log|__init__\.py",
    re.IGNORECASE,
)
_NAMED_SO = lazy_regex(
    r"(?:.*[-_.])?(?:config|configs|settings|args|arguments|hparams|hyperparameters|params|options|command|cmd|"
    r"launch|overrides|notes)"
    r"(?:[-_.].*)?\.(?:txt|md|text|dat)|config|args|cmd|command",
    re.IGNORECASE,
)
_JSON_LINES = re.compile(rb"\s*\{[^\n]*\}[ \t]*\r?\n\s*\{")
"""One record per line: a log or a dataset."""

_MOST_BYTES = 1024 * 1024  # does not apply to notebooks, which embed images


def looks_like_config(path: str | os.PathLike[str], head: bytes) -> bool:
    """Whether a file with these first bytes is a config, not a log, data or a vocabulary."""
    name = PurePath(path).name
    if name == "training_args.bin":
        return True
    if _NEVER.fullmatch(name):
        return False
    suffix = PurePath(name).suffix.lower()
    if not _SUFFIXES.fullmatch(suffix) and not _NAMED_SO.fullmatch(name):
        return False
    if b"\0" in head[:2000] and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    if suffix.startswith(".json") and (head.lstrip()[:1] == b"[" or _JSON_LINES.match(head)):
        return False
    try:
        return Path(path).stat().st_size <= (MOST_BYTES if suffix == ".ipynb" else _MOST_BYTES)
    except OSError:
        return True
