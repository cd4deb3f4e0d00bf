"""Detect the kind of a log file from its first bytes."""

from __future__ import annotations

import codecs
import json
import re

from stayfinite.readers.logs.csv_table import separator
from stayfinite.readers.logs.tfrecord import is_header

HEAD = 4_096  # bytes used to decide

_NO_TEXT = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]|\xef\xbf\xbd")
_MAGIC = (
    b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"PK\x03\x04", b"%PDF", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05",
    b"\x7fELF", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"\x93NUMPY", b"\x89HDF", b"SQLite format 3", b"Rar!",
    b"(\xb5/\xfd",
)  # fmt: skip


def sniff(head: bytes, source: str) -> str:
    """Return ``gzip``, ``tensorboard``, ``json``, ``csv``, ``text`` or ``junk``."""
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if is_header(head[:12]) or ("tfevents" in source and b"\0" in head[:16]):
        return "tensorboard"
    if head.startswith(_MAGIC):
        return "junk"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = head[: len(head) // 2 * 2].decode("utf-16", "replace")
    else:
        if len(head) >= 64 and (len(_NO_TEXT.findall(head)) > len(head) // 10 or head.count(0) > len(head) // 2):
            return "text" if not head.strip(b"\0") else "junk"
        text = head.decode("utf-8-sig", "replace")
    return _sniff_text(text.replace("\0", "").lstrip("\ufeff"), source)


def _sniff_text(text: str, source: str) -> str:
    stripped = text.lstrip()
    if stripped[:1] in {"{", "["} and _is_document(stripped, source):
        return "json"
    lines = [line.rstrip("\r") for line in stripped.split("\n", 2) if line.strip()]
    mark = separator(lines[0]) if lines else ""
    if mark and (len(lines) == 1 or mark in lines[1]):
        return "csv"
    return "text"


def _is_document(text: str, source: str) -> bool:
    if re.match(r"\[\s*\{\s*\"", text) or '"log_history"' in text:
        return True
    if not re.match(r"\{\s*\"", text):
        return False
    first = text.split("\n", 1)[0]
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return source.endswith(".json")
    # A single object on the first line is either the first of many or the whole file.
    return source.endswith(".json") and not text[len(first) :].strip()
