"""Translation trainings that are killed and started again, each a process of its own; ``translation_job.py FOLDER``.

One is left alone (``whole``), one is killed in the middle of its second epoch (``middle``), one right after its last
step, before the evaluation (``late``). Each of the last two is then started again. The processes are forked from this
one, so that torch is loaded once.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

import torch

from dying import die_with_a_checkpoint
from stayfinite.guard.guard import Guard
from stayfinite.recipes.translate import train
from tiny_translations import quick_settings


def training(folder: Path, output: str, kill_at: int | None = None) -> None:
    torch.set_num_threads(1)
    if kill_at is not None:
        step = Guard.step

        def step_and_die(self: Guard) -> None:
            step(self)
            if self._step == kill_at:
                die_with_a_checkpoint()

        Guard.step = step_and_die
    train(
        quick_settings(
            folder, output_dir=str(folder / output), epochs=3, batch_tokens=220, accumulation=2, checkpoint_steps=2,
            eval_rows=3, label_smoothing=0.1, ema=0.9, samples=0,
        )
    )  # fmt: skip


def in_a_process(folder: Path, output: str, kill_at: int | None = None) -> int:
    """How it ended: 0, or minus the signal."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            training(folder, output, kill_at)
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path) -> None:
    ends = {"whole": in_a_process(folder, "whole")}
    result = json.loads((folder / "whole" / "result.json").read_text())
    kills = {"middle": result["evaluations"][0]["step"] + 1, "late": result["steps"]}
    for output, kill_at in kills.items():
        ends[f"{output} killed"] = in_a_process(folder, output, kill_at)
        ends[f"{output} unfinished"] = int(not (folder / output / "result.json").exists())
        ends[f"{output} again"] = in_a_process(folder, output)
    (folder / "ends.json").write_text(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
