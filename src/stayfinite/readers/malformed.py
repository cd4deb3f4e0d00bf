"""The error that readers raise for a file that breaks its format."""

from __future__ import annotations

from typing import Literal

Fault = Literal["truncated", "damaged", "unreadable", "unread", "foreign"]
"""``truncated``, ``damaged``: data is lost. ``unreadable``: the OS refused access. ``unread``: not checked, possibly
fine. ``foreign``: a different kind of file."""


class Malformed(Exception):
    """A file breaks its format. The text says what is wrong, where, and what was expected."""

    def __init__(self, text: str, *, kind: Fault = "damaged") -> None:
        super().__init__(text)
        self.text = text
        self.kind: Fault = kind
