"""Played on a stage: a training with one bad step, killed at a given sync to the disk; none is 0.

What it finds of incidents when it begins is written down.
"""

import json
from pathlib import Path

from fault_injector import kill_at_sync
from guarded_training import NAN, GuardedTraining, incidents
from stayfinite import Policy


def main(place: str, count: str) -> None:
    folder = Path(place)
    folder.mkdir(exist_ok=True)
    (folder / "found.json").write_text(json.dumps(incidents(folder)))
    training = GuardedTraining(folder, policy=Policy(autopsy_seconds=0, prove_steps=2))
    training.steps(5)
    training.guard.flush()
    if int(count):
        kill_at_sync(int(count))
    training.steps(1, NAN)
    training.guard.close()
