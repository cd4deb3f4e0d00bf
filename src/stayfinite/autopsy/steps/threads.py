"""Patches of torch functions affect all threads, but are meant for one step."""

from __future__ import annotations

import threading
from collections.abc import Callable


def of_this_step() -> Callable[[], bool]:
    """Return a test whether the current thread belongs to the caller's step: its own, or one of autograd's."""
    owner = threading.get_ident()

    def mine() -> bool:
        here = threading.get_ident()
        if here == owner:
            return True
        # Autograd's threads are unknown to Python, or dummies.
        return not any(t.ident == here and not isinstance(t, threading._DummyThread) for t in threading.enumerate())

    return mine
