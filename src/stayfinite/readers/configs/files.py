"""Read a file's bytes and text: bounded, in any encoding, with a clear error."""

from __future__ import annotations

import codecs
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

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


def read_content(path: str | os.PathLike[str], *, most: int = MOST_BYTES) -> Content:
    """Read the start of a regular file. Anything else is refused before opening, because a pipe could block forever."""
    source = os.fspath(path)
    try:
        status = Path(path).stat()
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{source} is a directory, not a config file", fix="name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{source} is not a regular file", fix="save its content to a file, and name that")
        with Path(path).open("rb") as file:
            data, size = file.read(most), status.st_size
            if most < size <= MOST_OF_A_NOTEBOOK and Path(path).suffix == ".ipynb":
                whole = _PICTURE.sub(b'""', data + file.read())
                data, size = whole[:most], len(whole)
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
