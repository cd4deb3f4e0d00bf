"""Every kind of fault: when and how it is planted, and what has to come of it."""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Callable

import fault_injector as inject
from faults import evidence
from faults.sabotages import (
    BadBatches,
    BadGradients,
    CorruptData,
    FlippedWeight,
    FullDisk,
    HotLearningRate,
    KilledInCheckpoint,
    LostDirectory,
    SavedOnSignal,
    Signalled,
)
from faults.short_training import ITEMS, STEPS
from faults.trial import Outcome, Trial

Kind = Callable[[Trial], Outcome]

SETTLED = 20
"""Steps after which there is a known-good state to go back to."""

SPARE = 25
"""Steps at the end in which a training can find back to where it was."""

ROOM_TO_COMPLAIN = 2000
"""Bytes that the log needs for its warnings, which the full disk holds too; a checkpoint needs far more."""

SYNCS = 7
"""Times that a checkpoint of one process brings something to the disk."""


def _some_steps(chance: random.Random, most: int = 3) -> range:
    first = chance.randrange(SETTLED, STEPS - SPARE)
    return range(first, first + chance.randint(1, most))


def _refused(trial: Trial, steps: range, *codes: str) -> None:
    found = evidence.refused_steps(trial.job)
    for step in steps:
        trial.demand(found.get(step) in codes, f"step {step} was not refused for {codes} but {found.get(step)}")


def _resumed(trial: Trial, **limit: int) -> Outcome:
    """The same command again, after a death: little is lost, and the end has the bits of a training without it."""
    reached, left = evidence.last_step(trial.job), evidence.good_checkpoints(trial.job)
    life = trial.live()
    trial.loses_little(reached, left, life, **limit)
    return trial.untouched(life)


# -- bad numbers -----------------------------------------------------------------------------------------------------


def nan_batch(trial: Trial) -> Outcome:
    steps = _some_steps(trial.chance)
    life = trial.live(BadBatches, steps=steps, value=math.nan)
    _refused(trial, steps, "loss-not-finite")
    return trial.survived(life)


def inf_batch(trial: Trial) -> Outcome:
    steps = _some_steps(trial.chance)
    life = trial.live(BadBatches, steps=steps, value=trial.chance.choice([math.inf, -math.inf]))
    _refused(trial, steps, "loss-not-finite")
    return trial.survived(life)


def nan_for_ever(trial: Trial) -> Outcome:
    first = trial.chance.randrange(2, STEPS - SPARE)
    life = trial.live(BadBatches, steps=range(first, STEPS + 1), value=math.nan)
    return trial.stopped(life, 87, "TrainingDiverged", "steps in a row were refused", "loss is nan")


def nan_gradient(trial: Trial) -> Outcome:
    steps = _some_steps(trial.chance)
    life = trial.live(BadGradients, steps=steps, value=trial.chance.choice([math.nan, math.inf]))
    _refused(trial, steps, "gradient-not-finite")
    return trial.survived(life)


def loss_spike(trial: Trial) -> Outcome:
    steps = _some_steps(trial.chance)
    life = trial.live(BadBatches, steps=steps, times=1000.0)
    found = evidence.refused_steps(trial.job)
    trial.demand(not set(found) & set(steps), f"a finite step was refused: {found}")
    return trial.survived(life)


def weight_bit_flip(trial: Trial) -> Outcome:
    return trial.survived(trial.live(FlippedWeight, at=_some_steps(trial.chance)[0]))


def learning_rate_times_1000(trial: Trial) -> Outcome:
    return trial.survived(trial.live(HotLearningRate, steps=_some_steps(trial.chance, most=5), times=1000.0))


# -- bad data --------------------------------------------------------------------------------------------------------


def loader_error(trial: Trial) -> Outcome:
    item = trial.chance.randrange(ITEMS)
    life = trial.live(CorruptData, items=[item])
    named = [each["items"] for each in evidence.events(trial.job, "loader-error")]
    trial.demand(named == [[item]] * 2, f"the events name {named}, not item {item} once an epoch")
    trial.outcome.steps_lost += len(named)
    return trial.survived(life)


def loader_broken(trial: Trial) -> Outcome:
    life = trial.live(CorruptData, items=trial.chance.sample(range(ITEMS), 60))
    return trial.stopped(life, 88, "LoaderFailed", "4 batches failed to load", "cannot be read")


# -- death -----------------------------------------------------------------------------------------------------------


def kill_9(trial: Trial) -> Outcome:
    at = 0
    for _ in range(trial.chance.randint(1, 2)):
        at = trial.chance.randrange(at + 1, STEPS - SPARE + at // 4)
        slow = trial.chance.choice([0.0, 0.004])
        life = trial.live(
            Signalled, at=at, number=signal.SIGKILL, seconds=trial.chance.uniform(0, 0.03), slow_disk=slow
        )
        trial.died(life, -signal.SIGKILL)
    return _resumed(trial)


def kill_in_checkpoint(trial: Trial) -> Outcome:
    life = trial.live(KilledInCheckpoint, sync=trial.chance.randrange(1, 12 * SYNCS))
    trial.died(life, -signal.SIGKILL)
    return _resumed(trial)


def sigterm(trial: Trial) -> Outcome:
    at, saves = trial.chance.randrange(1, STEPS - SPARE), trial.chance.random() < 0.5
    seconds = trial.chance.uniform(0, 0.03)
    life = trial.live(SavedOnSignal if saves else Signalled, at=at, number=signal.SIGTERM, seconds=seconds)
    trial.died(life, 128 + signal.SIGTERM if saves else -signal.SIGTERM)
    return _resumed(trial, **({"at_most": 0} if saves else {}))


# -- the disk --------------------------------------------------------------------------------------------------------


def full_disk(trial: Trial) -> Outcome:
    since = trial.chance.randrange(5, STEPS - SPARE)
    until = trial.chance.choice([STEPS + 1, since + trial.chance.randrange(6, 15)])
    life = trial.live(FullDisk, since=since, until=until, room=trial.chance.randrange(ROOM_TO_COMPLAIN, 6000))
    trial.demand(life.says("CheckpointWarning"), "nobody was told that checkpoints could not be written")
    good = evidence.good_checkpoints(trial.job)
    trial.demand(bool(good), "the last good checkpoint is gone")
    if until < STEPS:
        trial.demand(
            bool(good) and evidence.step_of(good[0]) > until, "no checkpoint was written after there was room again"
        )
    trial.untouched(life)
    return trial.untouched(trial.live())


def truncated_checkpoint(trial: Trial) -> Outcome:
    return _damaged(trial, inject.truncate)


def flipped_checkpoint(trial: Trial) -> Outcome:
    return _damaged(trial, inject.flip_bit)


def _damaged(trial: Trial, damage: Callable[..., str]) -> Outcome:
    at = trial.chance.randrange(SETTLED, STEPS - 5)
    trial.died(trial.live(Signalled, at=at, number=signal.SIGKILL, seconds=0.0), -signal.SIGKILL)
    reached, left = evidence.last_step(trial.job), evidence.good_checkpoints(trial.job)
    hashed = set()
    for path in left[: trial.chance.choice([1, 1, 1, len(left)])]:
        file = trial.chance.choice(sorted(path.iterdir()))
        trial.outcome.story += f"; {path.name}: {damage(file, trial.chance)}"
        trial.spoiled.add(path)
        # A manifest with a flipped bit may say the same as before; everything else is hashed in it.
        if file.name != "manifest.json":
            hashed.add(path)
    life = trial.live()
    trial.demand(bool(life.result), f"it did not finish: {life.exit_codes}")
    first = life.result.get("first", 0)
    sound = [path for path in left if path not in trial.spoiled]
    newest_sound = evidence.step_of(sound[0]) if sound else 0
    taken = [path for path in left if evidence.step_of(path) == first]
    trial.demand(first >= newest_sound, f"resumed from step {first}, a sound checkpoint is of step {newest_sound}")
    trial.demand(not hashed & set(taken), "a damaged checkpoint was taken for a good one")
    passed_over = {each["checkpoint"] for each in evidence.events(trial.job, "checkpoint-passed-over")}
    silent = {path.name for path in hashed if evidence.step_of(path) > first} - passed_over
    trial.demand(not silent, f"{silent} are damaged and were passed over without a word")
    trial.loses_little(reached, taken, life, at_most=STEPS)
    return trial.untouched(life)


def unreadable_directory(trial: Trial) -> Outcome:
    checkpoints_only = trial.chance.random() < 0.5
    if trial.chance.random() < 0.3:
        life = trial.live(LostDirectory, at=0, checkpoints_only=checkpoints_only)
        return trial.stopped(life, 1, "StateError", "cannot be read")
    at = trial.chance.randrange(1, STEPS - 10)
    life = trial.live(LostDirectory, at=at, checkpoints_only=checkpoints_only)
    trial.demand(life.says("CheckpointWarning"), "nobody was told that checkpoints could not be written")
    return trial.untouched(life)


# -- one of two ranks ------------------------------------------------------------------------------------------------


def one_rank_nan(trial: Trial) -> Outcome:
    rank, steps = trial.chance.randrange(2), _some_steps(trial.chance)
    if trial.chance.random() < 0.5:
        life = trial.live(BadBatches, on=rank, steps=steps, value=math.nan)
    else:
        life = trial.live(BadGradients, on=rank, steps=steps, value=math.nan)
    _refused(trial, steps, "loss-not-finite", "gradient-not-finite")
    named = [each.get("bad_ranks") for each in evidence.events(trial.job, "veto") if each["step"] in steps]
    trial.demand(named == [[rank]] * len(steps), f"the events name {named}, not rank {rank}")
    return trial.survived(life)


def one_rank_loader_broken(trial: Trial) -> Outcome:
    life = trial.live(CorruptData, on=trial.chance.randrange(2), items=range(0, 2 * ITEMS, 2))
    return trial.stopped(life, 88, "LoaderFailed", "cannot be read")


def one_rank_killed(trial: Trial) -> Outcome:
    rank, at = trial.chance.randrange(2), trial.chance.randrange(1, STEPS - SPARE)
    seconds = trial.chance.uniform(0, 0.05)
    life = trial.live(Signalled, on=rank, at=at, number=signal.SIGKILL, seconds=seconds)
    other = life.exit_codes[1 - rank]
    trial.demand(life.exit_codes[rank] == -signal.SIGKILL, f"it ended with {life.exit_codes}")
    trial.demand(other not in (0, 86, 87, 88), f"the rank that was left ended with {other}: would not be restarted")
    return _resumed(trial)


ON_ONE: dict[str, Kind] = {
    "NaN batch": nan_batch,
    "Inf batch": inf_batch,
    "NaN batches for ever": nan_for_ever,
    "NaN gradient": nan_gradient,
    "loss spike": loss_spike,
    "bit flip in a weight": weight_bit_flip,
    "learning rate x 1000": learning_rate_times_1000,
    "corrupt item": loader_error,
    "broken loader": loader_broken,
    "kill -9": kill_9,
    "kill -9 in a checkpoint": kill_in_checkpoint,
    "SIGTERM": sigterm,
    "full disk": full_disk,
    "truncated checkpoint": truncated_checkpoint,
    "bit flip in a checkpoint": flipped_checkpoint,
    "unreadable directory": unreadable_directory,
}
ON_TWO: dict[str, Kind] = {
    "NaN on one of 2 ranks": one_rank_nan,
    "broken loader on one of 2": one_rank_loader_broken,
    "kill -9 of one of 2 ranks": one_rank_killed,
}
KINDS = ON_ONE | ON_TWO
