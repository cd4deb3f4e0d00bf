"""What a reader raises where a file is not what it should be."""

from __future__ import annotations

from typing import Literal

Fault = Literal["truncated", "damaged", "unreadable", "unread", "foreign"]
"""``truncated``, ``damaged``: what was written is gone. ``unreadable``: the system refuses. ``unread``: sound perhaps,
and not looked into. ``foreign``: something else altogether."""


class Malformed(Exception):
    """A file is not what its format demands. The text says what, where and what was expected."""

    def __init__(self, text: str, *, kind: Fault = "damaged") -> None:
        super().__init__(text)
        self.text = text
        self.kind: Fault = kind
