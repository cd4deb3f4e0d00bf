"""A training on pairs of images as a process of its own, to be killed: ``compare_job.py DIRECTORY [KILL_AT]``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from image_pairs import small_settings
from stayfinite.recipes.compare import train
from stayfinite.recipes.images.losses import Comparison


def main(directory: str, kill_at: int) -> None:
    calls, plain = 0, Comparison.loss

    def counted(self: Comparison, batch: object) -> object:
        nonlocal calls
        calls += 1
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, batch)  # type: ignore[arg-type]

    Comparison.loss = counted  # type: ignore[method-assign,assignment]
    train(small_settings(Path(directory), epochs=2, tuning="lora", lora_dropout=0.1, checkpoint_steps=2))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
