"""A small training that ends by SIGKILL; run by tests as ``mmdit_job.py DATA OUTPUT STEPS_BEFORE_THE_KILL``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from dying import die_with_a_checkpoint
from mmdit_runs import run
from stayfinite.guard.guard import Guard

RESUMABLE: dict[str, Any] = {"steps": 16, "eval_steps": 4, "checkpoint_steps": 3, "dropout": 0.1}
"""Settings of the training that is killed and of the one that is not; 12 steps are an epoch."""

if __name__ == "__main__":
    torch.set_num_threads(1)
    left = int(sys.argv[3])
    step = Guard.step

    def step_then_die(self: Guard, *args: Any, **kwargs: Any) -> None:
        global left  # noqa: PLW0603
        step(self, *args, **kwargs)
        left -= 1
        if not left:
            die_with_a_checkpoint()

    Guard.step = step_then_die  # type: ignore[method-assign]
    run(Path(sys.argv[1]), Path(sys.argv[2]), **RESUMABLE)
