"""Bytes in chunks of any size -> whole lines of text, bounded.

Encoding by byte order mark, else UTF-8; what cannot be decoded becomes the replacement character. A line of more than
``LONGEST`` characters keeps its head and its tail.
"""

from __future__ import annotations

import codecs
import re

LONGEST = 65_536
_HALF = LONGEST // 2

_COLOURS = re.compile(r"\x1b(?:\[[0-9;?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]{0,256}+(?:\x07|\x1b\\)|[@-Z\\-_])")


_BACKSPACES = re.compile("\b+")


class Decoder:
    """Bytes -> text, however they are cut."""

    def __init__(self) -> None:
        self._decoder: codecs.IncrementalDecoder | None = None
        self._head = b""

    def decode(self, chunk: bytes, *, final: bool) -> str:
        """The text that is complete now."""
        if self._decoder is None:
            chunk = self._head + chunk
            self._head = b""
            if len(chunk) < 4 and not final:
                self._head = chunk
                return ""
            self._decoder = codecs.getincrementaldecoder(_encoding(chunk))("replace")
        return self._decoder.decode(chunk, final)


class LineSplitter:
    """Takes chunks, gives lines without their ends, colors and NUL bytes.

    A line that ends in a carriage return is the part so far of one that goes on: progress bars draw themselves over and
    over without ever ending their line.
    """

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._rest = ""
        self._tail = ""
        self._cut = False

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that are complete now."""
        return self._split(self._decoder.decode(chunk, final=False))

    def close(self) -> list[str]:
        """What is left without a line end."""
        lines = self._split(self._decoder.decode(b"", final=True))
        rest = self._release()
        if rest:
            lines.append(_cleaned(rest.rstrip("\r")))
        return lines

    def _split(self, text: str) -> list[str]:
        if not text:
            return []
        pieces = text.split("\n")
        last = pieces.pop()
        if pieces:
            self._hold(pieces[0])
            pieces[0] = self._release()
            if len(text) > LONGEST:
                pieces[1:] = [piece if len(piece) <= LONGEST else _shortened(piece) for piece in pieces[1:]]
            if "\r" in text or "\r" in pieces[0]:
                pieces = [piece.rstrip("\r") for piece in pieces]
        drawn = last.rfind("\r") + 1
        if drawn:
            self._hold(last[:drawn])
            pieces.append(self._release())
        self._hold(last[drawn:])
        if pieces and any(mark in text or mark in pieces[0] for mark in ("\x1b", "\0", "\b")):
            pieces = [_cleaned(piece) for piece in pieces]
        return pieces

    def _hold(self, text: str) -> None:
        """Add to the line that is not complete yet."""
        if not self._cut:
            if len(self._rest) + len(text) <= LONGEST:
                self._rest += text
                return
            whole = self._rest + text
            self._cut, self._rest, text = True, whole[:_HALF], whole[_HALF:]
        self._tail = (self._tail + text)[-_HALF:]

    def _release(self) -> str:
        line = f"{self._rest} ... {self._tail}" if self._cut else self._rest
        self._rest, self._tail, self._cut = "", "", False
        return line


def _shortened(line: str) -> str:
    return f"{line[:_HALF]} ... {line[-_HALF:]}"


def _cleaned(line: str) -> str:
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
    if "\b" in line:  # drawn over, as by a carriage return
        line = _BACKSPACES.sub("\r", line)
    return line.replace("\0", "") if "\0" in line else line


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    return "utf-8"
