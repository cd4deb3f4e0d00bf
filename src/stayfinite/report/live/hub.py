"""Broadcast messages from one writer to many viewers without waiting for slow ones.

Messages are numbered. A viewer names the last one it saw and gets those after it, or the whole page's data if they are
no longer kept. A viewer that falls too far behind is dropped; its browser reconnects.
"""

import secrets
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Queue

KEPT_BYTES = 4 << 20
KEPT_MESSAGES = 512
"""Messages kept for viewers that reconnect."""

BEHIND = 64
"""Messages that may queue for a viewer."""

MOST_VIEWERS = 64


class TooManyViewers(Exception):
    """The limit of viewers is reached."""


class Viewer:
    """One open page and its queue of messages, at the end of which None says that the viewer was dropped."""

    def __init__(self) -> None:
        self._waiting: Queue[tuple[str, bytes] | None] = Queue()

    def put(self, name: str, message: bytes) -> bool:
        """Queue a message; False if too many wait already, which drops the viewer."""
        if self._waiting.qsize() >= BEHIND:
            with suppress(Empty):
                while True:
                    self._waiting.get_nowait()
            self.drop()
            return False
        self._waiting.put((name, message))
        return True

    def drop(self) -> None:
        self._waiting.put(None)

    def take(self, timeout: float) -> tuple[str, bytes] | None:
        """The next message, or None after the timeout. Raises EOFError if the viewer was dropped."""
        try:
            news = self._waiting.get(timeout=timeout)
        except Empty:
            return None
        if news is None:
            self.drop()  # for whoever asks again
            raise EOFError
        return news


class Hub:
    """Broadcasts messages to viewers."""

    def __init__(self, whole: Callable[[], bytes]) -> None:
        """``whole`` makes the message that replaces everything, for a viewer that missed too much."""
        self._whole = whole
        self.lock = threading.RLock()
        """Hold while changing the data behind ``whole`` until the change is published, so each viewer gets it exactly
        once.
        """
        self._viewers: set[Viewer] = set()
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._count = 0
        self._life = secrets.token_hex(4)  # tells message numbers of this server from those of an earlier one
        self.dropped = 0
        """Viewers dropped for being too slow."""

    def publish(self, message: bytes) -> None:
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
        """The id of the newest message, which a page made now already includes."""
        with self.lock:
            return self._name(self._count)

    def join(self, seen: str) -> Viewer:
        """Add a viewer that has seen everything up to this message id.

        Raises:
            TooManyViewers: the limit is reached.
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
        with self.lock:
            self._viewers.discard(viewer)

    @property
    def viewers(self) -> int:
        with self.lock:
            return len(self._viewers)

    def close(self) -> None:
        with self.lock:
            for viewer in self._viewers:
                viewer.drop()
            self._viewers.clear()

    def _name(self, count: int) -> str:
        return f"{self._life}-{count}"

    def _missed(self, seen: str) -> list[bytes] | None:
        """The messages after this id, or None if unknown."""
        life, _, count = seen.partition("-")
        if life != self._life or not (count.isascii() and count.isdigit() and len(count) < 16):
            return None
        missed = self._count - int(count)
        if not 0 <= missed <= min(len(self._kept), BEHIND // 2):
            return None
        return list(self._kept)[len(self._kept) - missed :]
