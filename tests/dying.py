"""How a test's training is killed: at a moment that does not depend on the speed of the disk."""

from __future__ import annotations

import os
import signal
import threading


def die_with_a_checkpoint() -> None:
    """End this process by SIGKILL once the checkpoint that is being written is whole.

    Checkpoints are written beside the training: a kill that races the first of them may leave nothing to go on from.
    """
    for thread in threading.enumerate():
        if thread.name.startswith("stayfinite checkpoint"):
            thread.join()
    os.kill(os.getpid(), signal.SIGKILL)
