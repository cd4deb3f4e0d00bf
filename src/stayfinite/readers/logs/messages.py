"""Lines that are not measurements: grouped by text without numbers, and bounded; tracebacks joined into one text."""

from __future__ import annotations

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message

MOST_KINDS = 4_000
"""Beyond this many groups, only lines that look like errors or warnings are kept."""
MOST_TROUBLE = 8_000
LONGEST_TEXT = 8_192

_NUMBERS = lazy_regex(r"0x[0-9a-fA-F]+|\d+")
_TROUBLE = (
    "error", "exception", "warn", "assert", "overflow", "underflow", "skip", "mismatch", "fail", "kill", "memory",
    "traceback", "abort", "signal", "timeout", "corrupt", "missing", "unexpected", "deprecat", "diverg", "finite",
    "invalid", "grad_fn", "requires_grad", "nccl", "cuda", "truncat", "trainable",
)  # fmt: skip
_SHORT_TROUBLE = lazy_regex(r"\b(?:nan|inf|oom|xid|ecc)\b")


def is_trouble(text: str) -> bool:
    """Whether a line looks like an error or a warning."""
    lowered = text.lower()
    for word in _TROUBLE:
        if word in lowered:
            return True
    return _SHORT_TROUBLE.search(lowered) is not None


class _Kind:
    __slots__ = ("count", "last", "line", "measured", "text")

    def __init__(self, text: str, line: int, *, measured: bool) -> None:
        self.text, self.line, self.last, self.count, self.measured = text, line, line, 1, measured


class Messages:
    """The messages of one series."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def known(self, text: str, line: int) -> int:
        """Count a line if a similar one is stored; return the count, or 0 if it is new or also a measurement."""
        kind = self._kinds.get(_NUMBERS.sub("#", text[:LONGEST_TEXT]))
        if kind is None or kind.measured:
            return 0
        kind.count += 1
        kind.last = line
        return kind.count

    def add(self, text: str, line: int, *, count: int = 1, last: int = 0, measured: bool = False) -> None:
        """Store a line, or count it if a similar one is stored."""
        text = shortened(text)
        key = _NUMBERS.sub("#", text)
        kind = self._kinds.get(key)
        if kind is not None:
            kind.count += count
            kind.last = last or line
            return
        full = len(self._kinds)
        if full >= MOST_KINDS and (full >= MOST_TROUBLE or not is_trouble(text)):
            return
        kind = self._kinds[key] = _Kind(text, line, measured=measured)
        kind.count, kind.last = count, last or line

    def listed(self, source: str, rank: int | None) -> list[Message]:
        """Return the messages in line order."""
        kinds = sorted(self._kinds.values(), key=lambda kind: kind.line)
        return [Message(kind.text, source, kind.line, kind.count, kind.last, rank) for kind in kinds]


def shortened(text: str) -> str:
    """Cut to ``LONGEST_TEXT`` characters, keeping head and tail."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2 - 16
    return f"{text[:half]} ... {text[-half:]}"


_HEAD = lazy_regex(r"\s*(?:(\w{1,80})\s{1,200})?Traceback \(most recent call last\)")
_CHAIN = lazy_regex(
    r"During handling of the above exception, another exception occurred|The above exception was the direct cause"
)
_MOST_LINES = 400


class Traceback:
    """The traceback being read, if any."""

    def __init__(self) -> None:
        self._block: list[str] = []
        self._begun = 0
        self._chained = ""
        self._awaited = ""  # notebooks print the exception first and do not indent frames

    @property
    def is_open(self) -> bool:
        return bool(self._block)

    def feed(self, text: str, line: int) -> tuple[str, int] | None:
        """Read a line without its prefix. Return the finished traceback and its first line number, or None."""
        head = _HEAD.match(text)
        if head:
            done = self._finish() if self._block else None
            self._block, self._begun, self._awaited = [text.strip()], line, head[1] or ""
            return done
        if not self._block:
            if self._chained and text.strip() and not _CHAIN.search(text):
                self._chained = ""
            return None
        if text[:1] in {" ", "\t"} or not text.strip() or (self._awaited and not text.startswith(self._awaited)):
            if len(self._block) < _MOST_LINES:
                self._block.append(text)
                return None
            if not self._awaited:
                return None
        self._block.append(text)
        return self._finish()

    def close(self) -> tuple[str, int] | None:
        """Return the traceback at the end of the log, if any."""
        return self._finish() if self._block else None

    def _finish(self) -> tuple[str, int] | None:
        if len(self._block) == 1:  # only its first line
            self._block = []
            return None
        block, begun = "\n".join(self._block), self._begun
        text = f"{self._chained}\n{block}" if self._chained else block
        self._block, self._chained = [], self._last_line(block)
        return text, begun

    @staticmethod
    def _last_line(block: str) -> str:
        return f"{block.rsplit(chr(10), 1)[-1]}\n(then)"
