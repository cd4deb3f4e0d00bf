"""One writer, many viewers: each message goes to all of them, and nobody who is slow is waited for.

Messages are numbered. A viewer says which one it saw last and gets those that came after, or, where they are not kept
any more, a whole page's data. A viewer that falls too far behind is dropped; its browser comes back by itself.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable

KEPT_BYTES = 4 << 20
KEPT_MESSAGES = 512
"""Messages that are kept for viewers who come back."""

BEHIND = 64
"""Messages that may wait for a viewer."""

MOST_VIEWERS = 64


class TooManyViewers(Exception):
    """There is no room for another one."""


class Viewer:
    """One open page: the messages that wait for it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._news = threading.Condition()
        self._dropped = False

    def put(self, name: str, message: bytes) -> bool:
        """Add a message; False where too many wait already, and the viewer is dropped."""
        with self._news:
            if len(self._waiting) >= BEHIND:
                self._dropped = True
                self._waiting.clear()
            else:
                self._waiting.append((name, message))
            self._news.notify()
            return not self._dropped

    def drop(self) -> None:
        """Send it away."""
        with self._news:
            self._dropped = True
            self._news.notify()

    def take(self, timeout: float) -> tuple[str, bytes] | None:
        """The next message; None when none came in time.

        Raises:
            EOFError: the viewer was dropped.
        """
        with self._news:
            if not self._waiting and not self._dropped:
                self._news.wait(timeout)
            if self._waiting:
                return self._waiting.popleft()
            if self._dropped:
                raise EOFError
            return None


class Hub:
    """Hands messages on."""

    def __init__(self, whole: Callable[[], bytes]) -> None:
        """``whole``: the message that replaces everything, asked for where a viewer has missed too much."""
        self._whole = whole
        self.lock = threading.RLock()
        """Held by whoever changes what ``whole`` tells until the change is published: nobody sees it twice or never."""
        self._viewers: set[Viewer] = set()
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._count = 0
        self._life = secrets.token_hex(4)  # so that a number of an earlier server is not taken for one of this one
        self.dropped = 0
        """Viewers that were too slow."""

    def publish(self, message: bytes) -> None:
        """Send to everybody."""
        with self.lock:
            self._count += 1
            name = self._name(self._count)
            self._kept.append(message)
            self._kept_bytes += len(message)
            while len(self._kept) > KEPT_MESSAGES or (self._kept_bytes > KEPT_BYTES and len(self._kept) > 1):
                self._kept_bytes -= len(self._kept.popleft())
            for viewer in list(self._viewers):
                if not viewer.put(name, message):
                    self._viewers.discard(viewer)
                    self.dropped += 1

    def now(self) -> str:
        """The name of the newest message: a page that is made now has seen it."""
        with self.lock:
            return self._name(self._count)

    def join(self, seen: str) -> Viewer:
        """A new viewer who has seen everything up to the message of that name.

        Raises:
            TooManyViewers: there is no room.
        """
        viewer = Viewer()
        with self.lock:
            if len(self._viewers) >= MOST_VIEWERS:
                raise TooManyViewers
            missed = self._missed(seen)
            if missed is None:
                viewer.put(self._name(self._count), self._whole())
            else:
                for place, message in enumerate(missed, start=self._count - len(missed) + 1):
                    viewer.put(self._name(place), message)
            self._viewers.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """It has gone."""
        with self.lock:
            self._viewers.discard(viewer)

    @property
    def viewers(self) -> int:
        """How many there are."""
        with self.lock:
            return len(self._viewers)

    def close(self) -> None:
        """Send everybody away."""
        with self.lock:
            for viewer in self._viewers:
                viewer.drop()
            self._viewers.clear()

    def _name(self, count: int) -> str:
        return f"{self._life}-{count}"

    def _missed(self, seen: str) -> list[bytes] | None:
        """The messages after that one; None where that is not known."""
        life, _, count = seen.partition("-")
        if life != self._life or not (count.isascii() and count.isdigit() and len(count) < 16):
            return None
        missed = self._count - int(count)
        if not 0 <= missed <= min(len(self._kept), BEHIND // 2):
            return None
        return list(self._kept)[len(self._kept) - missed :]
