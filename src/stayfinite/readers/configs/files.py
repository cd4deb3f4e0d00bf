"""Read a file's bytes and text, bounded and in any encoding; detect its kind, and whether it is a config at all."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Settings
from stayfinite.errors import UsageError

MOST_BYTES = 4 * 1024 * 1024  # per file. Configs are a few kilobytes

MOST_OF_A_NOTEBOOK = 128 * 1024 * 1024  # including its images, which are dropped before parsing

_PICTURE = re.compile(rb'"[A-Za-z0-9+/=\\]{4096,}"')
"""Base64 in notebook outputs: one string on one line."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Content:
    """The first ``MOST_BYTES`` of a file."""

    source: str
    data: bytes
    size: int

    @property
    def cut(self) -> str:
        """A note that only the start was read, or ""."""
        if self.size <= len(self.data):
            return ""
        return f"only the first {len(self.data):,} of {self.size:,} bytes were read"


def read_content(path: str | os.PathLike[str]) -> Content:
    """Read the start of a regular file. Anything else is refused before opening, because a pipe could block forever."""
    source = os.fspath(path)
    try:
        status = Path(path).stat()
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{source} is a directory, not a config file", fix="name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{source} is not a regular file", fix="save its content to a file, and name that")
        with Path(path).open("rb") as file:
            data, size = file.read(MOST_BYTES), status.st_size
            if MOST_BYTES < size <= MOST_OF_A_NOTEBOOK and Path(path).suffix == ".ipynb":
                whole = _PICTURE.sub(b'""', data + file.read())
                data, size = whole[:MOST_BYTES], len(whole)
    except UsageError:
        raise  # also a ValueError
    except FileNotFoundError:
        raise UsageError(f"no such file: {source}", fix="check the path") from None
    except PermissionError:
        raise UsageError(f"permission denied: {source}", fix=f"chmod u+r {source}") from None
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror or error}", fix="check the path") from None
    except ValueError as error:  # NUL in the path
        raise UsageError(f"{source!r} is not a path: {error}", fix="check the path") from None
    return Content(source, data, max(size, len(data)))


def as_text(data: bytes) -> str | None:
    """Decode UTF-8, UTF-16, UTF-32 or Latin-1, with Unix line ends; None if it is not text."""
    text = _decoded(data)
    return None if text is None else text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded(data: bytes) -> str | None:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace")
    head = data[:4096]
    if b"\0" in head:
        # UTF-16 without a byte order mark: every second byte of English text is zero.
        for encoding, zeros, others in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
            if zeros.count(0) > 0.7 * len(zeros) and others.count(0) == 0:
                return data.decode(encoding, errors="replace")
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start >= len(data) - 4:  # the size limit split the last character
            return data[: error.start].decode("utf-8")
    text = data.decode("latin-1")
    controls = sum(1 for character in text[:4096] if character < " " and character not in "\t\n\r\f\x1b")
    return None if controls > 0.02 * min(len(text), 4096) else text


Reader = Callable[[str, str, str], Settings]
"""``read(kind, text, source)`` reads a text of a known kind; used for files that contain other files."""

_BY_SUFFIX = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".json5": "json", ".jsonc": "json", ".toml": "toml",
    ".ini": "ini", ".cfg": "ini", ".conf": "ini", ".py": "script", ".ipynb": "notebook", ".sh": "shell",
    ".bash": "shell", ".zsh": "shell", ".slurm": "shell", ".sbatch": "shell", ".bin": "pickle", ".pkl": "pickle",
    ".pickle": "pickle", ".pt": "pickle", ".pth": "pickle", ".ckpt": "pickle",
}  # fmt: skip
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
    r"added_tokens\.json|special_tokens_map\.json|run\.json|manifest\.json|state\.json|ledger\.json|autopsy\.json|"
    r"incident\.json|dataset_infos?\.json|package(-lock)?\.json|requirements.*\.txt|label\.json|conftest\.py|"
    r"setup\.(py|cfg)|README.*|LICENSE.*|dict\..*\.txt|.*\.jsonl|.*\.log|__init__\.py",
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

_MOST_OF_A_CONFIG = 1024 * 1024  # does not apply to notebooks, which embed images


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
    measured = head.lstrip()[:1] == b"[" or _JSON_LINES.match(head) or b'"log_history"' in head
    if suffix.startswith(".json") and measured:
        return False  # records, or a copy of trainer_state.json by another name
    try:
        return Path(path).stat().st_size <= (MOST_BYTES if suffix == ".ipynb" else _MOST_OF_A_CONFIG)
    except OSError:
        return True
