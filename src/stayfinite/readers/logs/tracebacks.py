"""Python tracebacks: joined into one text, so that the error and its location stay together."""

from __future__ import annotations

from stayfinite.core.lazy_regex import lazy_regex

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
