"""A training with accelerate in processes of its own: ``accelerate_job.py FOLDER ours``, or ``plain``, or ``kill``."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from accelerate_training import NAN, Training

LAST = "saved"


class OneBadRank(Training):
    """The second rank has a bad batch."""

    def step(self, number: int, x: Any, y: Any) -> None:
        if self.accelerator.process_index == 1 and number == 7:
            x = x.clone()
            x[3, 2] = NAN
        super().step(number, x, y)


def several_ranks(folder: Path, *, ours: bool) -> None:
    training = OneBadRank({"run_dir": folder} if ours else None)
    training.epoch()
    # What every rank needs together, as in any loop with accelerate.
    losses = training.accelerator.gather(torch.tensor(training.losses[-1:])).tolist()
    training.close()
    seen = {
        "weights": {name: value.reshape(-1).tolist() for name, value in training.model.state_dict().items()},
        "position": training.scheduler.scheduler.last_epoch,
        "skipped": [number for number, skipped in enumerate(training.skipped) if skipped],
        "losses": losses,
    }
    (folder / f"seen-{training.accelerator.process_index}.json").write_text(json.dumps(seen))


def resumable(folder: Path, kill_after: int = 0) -> Training:
    """Two epochs; the state is saved in the middle of each step that is a multiple of ten."""
    training = Training({"run_dir": folder / "run"}, fault="nan-batch", at=(7, 27))
    training.model.drop.p = 0.0
    first = 0
    if (folder / LAST).exists():
        training.accelerator.load_state(folder / LAST)
        first = training.guard.state_dict()["step"]
    for number, (x, y) in enumerate(training.batches):
        if number < first:
            continue
        training.step(number, x, y)
        if number % 10 == 9:
            training.accelerator.save_state(folder / LAST)
        if number + 1 == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
    training.close()
    return training


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, act = Path(sys.argv[1]), sys.argv[2]
    place.mkdir(exist_ok=True, parents=True)
    if act == "kill":
        resumable(place, kill_after=25)
    else:
        several_ranks(place, ours=act == "ours")
