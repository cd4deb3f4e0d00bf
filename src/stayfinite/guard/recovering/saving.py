"""The guard's checkpoints: content, outcome, and which one to resume from."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stayfinite.core.keeping import CheckpointCadence, Keeping, settle
from stayfinite.core.policy import Policy
from stayfinite.errors import PoisonedState, StateError
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.recovering.remembered import Remembered, read_remembered
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.state.checkpoints import Checkpointer, Outcome
from stayfinite.state.landing import HostMemory
from stayfinite.state.likeness import refusing_odd_values
from stayfinite.state.parts import TrainingParts
from stayfinite.state.reading import load, newest_good, notes_of_ranks
from stayfinite.state.shelf import own_token
from stayfinite.state.snapshots import SnapshotRing
from stayfinite.state.training import TrainingState, capture, restore

CHECKPOINTS = "checkpoints"

Notes = Callable[[], Mapping[str, Any]]


class Found(NamedTuple):
    """Content of a checkpoint besides the training's parts, which are already restored."""

    remembered: Remembered
    positions: list[dict[str, Any]]
    path: Path
    ledger: dict[str, Any]
    """Ledger of the run directory, which may be newer than the saved one; empty if none."""


class Saving:
    """Checkpoints of one training, written in the background.

    Arguments:
        policy: cadence and number of checkpoints.
        ranks: all processes; the run directory is on shared storage.
        recorder: records the outcome of each.
    """

    def __init__(self, parts: TrainingParts, policy: Policy, ranks: Ranks, recorder: Recorder) -> None:
        assert recorder.directory is not None
        self._parts = parts
        self._directory = recorder.directory / CHECKPOINTS
        self.cadence = CheckpointCadence(policy, first=ranks.first, many=ranks.world > 1)
        self._ranks = ranks
        self._recorder = recorder
        self._saver = Checkpointer(
            self._directory,
            keep=policy.keep_checkpoints,
            rank=ranks.rank,
            ranks=ranks.world,
            token=ranks.from_first(own_token()),
        )
        self._memory = HostMemory()

    def save(self, step: int, ring: SnapshotRing | None, keeping: Keeping, notes: Notes) -> None:
        """Copy the training state and start writing it; errors become events and never stop training.

        A snapshot and a checkpoint share one copy, so there are never more than two on the host. If checkpoints come
        faster than snapshots are proved, the last one is judged by the steps it has seen.
        """
        self.cadence.saved(step)
        copied: list[TrainingState] = []

        def copy() -> str:
            try:
                copied.append(self._copy(step, ring, notes))
            except (MemoryError, RuntimeError, StateError) as error:
                return getattr(error, "message", "") or f"{type(error).__name__}: {error}"
            return ""

        reason = settle(keeping.save(copy, lambda: self._saver.save(step, copied[0])), self._ranks.highest)
        if reason:
            self._recorder.trouble("checkpoint-failed", step, f"no checkpoint at step {step}: {reason}", reason=reason)

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due, the same on all ranks."""
        return settle(self.cadence.due(step), self._ranks.highest)

    def tell(self, *, wait: bool = False) -> None:
        """Record the outcomes of checkpoints since the last call."""
        for outcome in self._saver.wait() if wait else self._saver.collect():
            self._record(outcome)

    def hurry(self) -> None:
        """Wait only briefly for other ranks, because training has failed."""
        self._saver.hurry()

    def resume(self) -> Found | None:
        """Restore the newest good checkpoint; None if there is none. A collective.

        Raises:
            StateError: it does not fit or cannot be read. Nothing was changed.
        """
        name, passed = self._choose()
        for other, reason in passed:
            line = f"checkpoint {other} skipped: {reason}"
            self._recorder.announce("checkpoint-passed-over", 0, line, checkpoint=other, reason=reason)
        if name is None:
            return None
        found: Found | None = None
        failure: StateError | None = None
        try:
            with refusing_odd_values(self._directory / name):
                found = self._read(self._directory / name)
        except StateError as error:
            failure = error
        if self._ranks.highest(int(found is None)) or found is None:
            raise failure or StateError(f"another rank could not resume from {name}; see its log")
        step = found.remembered.step
        self._recorder.announce("resume", step, f"resumed from {name}", checkpoint=name)
        self.cadence.saved(step)
        return found._replace(ledger=json.loads(self._ranks.from_first(json.dumps(self._recorder.read_ledger()))))

    def in_words(self) -> str:
        """For ``guard.describe()``."""
        return f"checkpoints in {self._directory}, {self.cadence.in_words()}"

    def _choose(self) -> tuple[str | None, list[tuple[str, str]]]:
        """Checkpoint to resume from, as found by rank 0, and the skipped ones with reasons."""
        found: dict[str, Any] = {}
        if self._ranks.first:
            try:
                path, passed = newest_good(self._directory)
                found = {
                    "name": None if path is None else path.name,
                    "passed": [(each.path.name, each.reason) for each in passed],
                }
            except StateError as error:
                found = {"error": error.message}
        found = json.loads(self._ranks.from_first(json.dumps(found)))
        if "error" in found:
            raise StateError(found["error"], fix="make the directory readable, or use another run_dir")
        return found["name"], [(each[0], each[1]) for each in found["passed"]]

    def _read(self, path: Path) -> Found:
        state = load(path, parts=self._parts, rank=self._ranks.rank)
        notes = state.notes
        if not isinstance(notes.get("guard"), dict) or not isinstance(notes.get("batches"), list):
            raise StateError(f"{path.name} was not written by a guard", fix="restore it with stayfinite.state instead")
        remembered = read_remembered(notes["guard"])
        restore(self._parts, state)
        return Found(remembered, _with_everyone(notes["batches"], path), path, {})

    def _copy(self, step: int, ring: SnapshotRing | None, notes: Notes) -> TrainingState:
        if ring is not None:
            return ring.take(step, notes=notes).state
        self._memory.wait_free()
        return capture(self._parts, memory=self._memory, notes=notes())

    def _record(self, outcome: Outcome) -> None:
        if outcome.error is None:
            self._recorder.announce(
                "checkpoint",
                outcome.step,
                path=f"{outcome.path}",
                bytes=outcome.nbytes,
                seconds=round(outcome.seconds, 3),
                waited=round(outcome.waited, 3),
            )
            return
        reason = getattr(outcome.error, "message", "") or f"{type(outcome.error).__name__}: {outcome.error}"
        poisoned = isinstance(outcome.error, PoisonedState)
        # The checkpointer has already warned; this is for the record.
        self._recorder.trouble("checkpoint-failed", outcome.step, "", reason=reason, poisoned=poisoned)


def _with_everyone(positions: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """Positions; stateful loaders also get the saved states of all ranks."""
    if not any("loader" in position for position in positions):
        return positions
    ranks = [notes["batches"] for notes in notes_of_ranks(path)]
    return [
        position | {"everyone": [each[number]["loader"] for each in ranks]} if "loader" in position else position
        for number, position in enumerate(positions)
    ]
