"""Ranks under torchrun: what all of them would print is printed once, by rank 0."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

PATIENCE = timedelta(seconds=5)
"""How long a rank waits for rank 0 to print the same, before it prints."""
KEY = "stayfinite/printed"


def is_first() -> bool:
    """Whether this is rank 0 or the only process; known before the ranks have joined."""
    return os.environ.get("RANK", "0") == "0"


def print_once(words: str, show: Callable[[], Any]) -> None:
    """Call ``show`` on rank 0, and on another rank unless rank 0 shows the same words.

    Rank 0 leaves its words in torchrun's store after it has shown them: torchrun ends all ranks when one has ended.
    """
    if is_first():
        show()
        with suppress(Exception):  # nobody may be listening
            if (store := _store()) is not None:
                store.set(KEY, words)
        return
    theirs = None
    with suppress(Exception):  # rank 0 has not failed, or the store is gone
        if (store := _store()) is not None:
            theirs = store.get(KEY).decode()
    if theirs != words:
        show()


def _store() -> Any:
    """torchrun's store; None without it. Also before the ranks have joined, and after they have left."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://", timeout=PATIENCE))[0]
