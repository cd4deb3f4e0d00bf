"""Whose thread is this: changes to functions of torch are seen by all threads, and are meant for one step alone."""

from __future__ import annotations

import threading
from collections.abc import Callable


def of_this_step() -> Callable[[], bool]:
    """A test for the thread that it is called in: this one, or one of autograd's own, and no other of Python's."""
    owner = threading.get_ident()

    def mine() -> bool:
        here = threading.get_ident()
        if here == owner:
            return True
        # Autograd's threads are not Python's: unknown to it, or known by a stand-in.
        return not any(t.ident == here and not isinstance(t, threading._DummyThread) for t in threading.enumerate())

    return mine
