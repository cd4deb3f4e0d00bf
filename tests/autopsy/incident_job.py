"""A training with one bad step, killed at a given sync to the disk: ``python incident_job.py FOLDER COUNT``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fault_injector import kill_at_sync
from guarded_training import NAN, GuardedTraining
from stayfinite import Policy


def main(folder: Path, count: int) -> None:
    training = GuardedTraining(folder, policy=Policy(autopsy_seconds=0, prove_steps=2))
    training.steps(5)
    training.guard.flush()
    if count:
        kill_at_sync(count)
    training.steps(1, NAN)
    training.guard.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
