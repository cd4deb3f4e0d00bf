"""From bytes to lines of text within a memory bound, and what launchers and loggers put before a line.

The encoding comes from the byte order mark, else UTF-8; undecodable bytes become U+FFFD. Lines longer than ``LONGEST``
characters keep their head and tail.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from itertools import pairwise

from stayfinite.core.lazy_regex import lazy_regex

LONGEST = 65_536
_HALF = LONGEST // 2

_COLOURS = lazy_regex(r"\x1b(?:\[[0-9;?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]{0,256}+(?:\x07|\x1b\\)|[@-Z\\-_])")


_BACKSPACES = lazy_regex("\b+")


class Decoder:
    """Incremental decoder that picks the encoding from the first four bytes."""

    def __init__(self) -> None:
        self._decoder: codecs.IncrementalDecoder | None = None
        self._head = b""

    def feed(self, chunk: bytes, *, final: bool = False) -> str:
        """The text that this chunk completes."""
        if self._decoder is None:
            self._head += chunk
            if len(self._head) < 4 and not final:
                return ""
            chunk, self._decoder = self._head, codecs.getincrementaldecoder(_encoding(self._head))("replace")
        return self._decoder.decode(chunk, final)

    def close(self) -> str:
        return self.feed(b"", final=True)


class LineSplitter:
    """Turns chunks into lines, without line ends, ANSI colors and NUL bytes.

    A line that ends in a carriage return is an intermediate state of a progress bar, which redraws without ending its
    line.
    """

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._rest = ""
        self._tail = ""
        self._cut = False

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines completed by this chunk."""
        return self._split(self._decoder.feed(chunk))

    def close(self) -> list[str]:
        """Return the last line if it has no line end."""
        lines = self._split(self._decoder.close())
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
                pieces[1:] = [p if len(p) <= LONGEST else f"{p[:_HALF]} ... {p[-_HALF:]}" for p in pieces[1:]]
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
        """Append to the incomplete line."""
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


def _cleaned(line: str) -> str:
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
    if "\b" in line:  # treated like a carriage return
        line = _BACKSPACES.sub("\r", line)
    return line.replace("\0", "") if "\0" in line else line


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    return "utf-8"


_DATE = r"(?:\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[-/]\d{1,2}[-/]\d{2,4}|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d)"
_TIME = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?: ?[AP]M)?(?:Z|[+-]\d{2}:?\d{2})?"
STAMP = rf"\[?(?:{_DATE}(?:[T ,_-]{{1,3}}{_TIME})?|{_TIME})(?: \d{{4}})?\]?(?=[\s,;:|\[(-]|$)[ \t,;:|-]{{0,3}}"
GLOG = r"[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d{1,9} +\d{1,9} (?:[\w./-]{1,120}:\d{1,6}\] ?)?"
_RANKS = (
    r"\[(?:[Rr]ank|RANK|default|[Ww]orker|[Pp]roc|[Gg]pu|GPU)[ _:=-]?(?P<tag>\d{1,6})\]:? ?|"
    r"\[(?P<bracket>\d{1,4})\]: ?|\[\d{1,4},(?P<mpi>\d{1,6})\]<std(?:out|err)>: ?|(?P<srun>\d{1,4}): (?! *(?:nan|inf|"
    r"nGT)\b)(?=[ ]*[A-Za-z\[{|<('_\"]|[ ]*\d{4}-)|\((?:[\w.]{1,60} )?pid=(?P<pid>\d{1,9})(?:, [^)\n]{0,60})?\) ?|"
    r"\d{1,3}\|[\w.-]{1,40} *\| |(?:[Rr]ank|RANK)[ :=]?(?P<word>\d{1,6})(?:\]|:|\s?\||,) ?"
)
_PREFIX = lazy_regex(rf"(?:{STAMP}|{GLOG}|{_RANKS}){{1,5}}")
_COUNTED = lazy_regex(rf"(?:{STAMP}|{GLOG}){{0,3}}(\d{{1,9}}): ")
_COUNTED_LINES = 6
"""Lines that begin with ever higher numbers, from which on these are steps and no ranks."""
_STARTS = frozenset("0123456789[(IWEFRrJFMASONDTL")


def counts_up(lines: Iterable[str]) -> bool:
    """Whether lines such as `300: D: 1.51` begin with their step: each rank would come more than once."""
    numbers = [int(found[1]) for line in lines if (found := _COUNTED.match(line))]
    return len(numbers) >= _COUNTED_LINES and all(before < after for before, after in pairwise(numbers))


def split_prefix(line: str, *, counted: bool = False) -> tuple[int, tuple[int, int] | None, bool]:
    """Return the start of the line's own text, the span of its rank or None, and whether the rank is a process id.

    ::

        [rank0]: ...   [Rank 0] ...   [0]: ...   0: ...   [default0]:...   [1,0]<stdout>:...
        (RayTrainWorker pid=123) ...   0|train  | ...   2024-05-06 07:08:09,123 ...   [07:08:09] ...
        05/06/2024 07:08:09 - ...   I0506 07:08:09.123456 99 train.py:12] ...

    Arguments:
        counted: a number and a colon at the start are the step.
    """
    if line[:1] not in _STARTS:
        return 0, None, False
    if counted and (step := _COUNTED.match(line)):
        return step.start(1), None, False
    match = _PREFIX.match(line)
    if match is None:
        return 0, None, False
    for group in ("tag", "bracket", "mpi", "srun", "word"):
        if match[group] is not None:
            return match.end(), match.span(group), False
    if match["pid"] is not None:
        return match.end(), match.span("pid"), True
    return match.end(), None, False
