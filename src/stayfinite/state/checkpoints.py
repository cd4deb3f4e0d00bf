"""Background checkpoints: a state is handed to a thread that writes it; disk errors never stop training."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from stayfinite.errors import PolicyError
from stayfinite.state import shelf
from stayfinite.state.training import TrainingState
from stayfinite.state.writing import Desk, write_checkpoint


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; training continues, and the last good one is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Result of one checkpoint."""

    step: int
    path: Path | None
    """Verified checkpoint; None if it could not be written."""

    error: Exception | None
    """``PoisonedState``, ``OSError``, ``StateError``, or None."""

    nbytes: int
    seconds: float
    """Time spent in the background."""

    waited: float
    """Time that training waited for the previous checkpoint."""


class Checkpointer:
    """Writes checkpoints into a directory, one at a time, and keeps the last good ones.

    Example:
        >>> saver = Checkpointer("runs/first/checkpoints", keep=3)
        >>> saver.save(step, capture(parts))  # returns at once
        >>> for outcome in saver.wait():
        ...     print(outcome.path or outcome.error)

    With several ranks every rank has one, and all of them call ``save`` for the same steps.

    Arguments:
        directory: parent of all checkpoints; created if needed.
        keep: good checkpoints to keep, at least 1.
        rank: this process, of ``ranks``; rank 0 writes replicated tensors.
        token: from ``sharded.agree_on_token``; needed with several ranks.
        patience: seconds to wait for another rank before a checkpoint is given up.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        keep: int = 3,
        rank: int = 0,
        ranks: int = 1,
        token: str = "",
        patience: float = 600.0,
    ) -> None:
        if keep < 1:
            raise PolicyError(f"keep={keep}: at least 1 checkpoint is needed")
        if ranks > 1 and not token:
            raise PolicyError("with several ranks they have to agree on a token", fix="token=agree_on_token()")
        self._desk = Desk(
            directory=Path(directory), token=token or shelf.own_token(), rank=rank, ranks=ranks, patience=patience
        )
        self._keep = keep
        self._number = 0
        self._thread: threading.Thread | None = None
        self._outcomes: deque[Outcome] = deque()
        self._unspoken: deque[Outcome] = deque()
        self._warned = False

    def save(self, step: int, state: TrainingState) -> None:
        """Start writing a state. Waits only for the previous checkpoint. Never raises for disk errors.

        The state's memory is held until it is written, so a ``SnapshotRing`` does not reuse it.
        """
        begun = time.monotonic()
        self._join()
        self._warn()
        self._number += 1
        if state.memory is not None:
            state.memory.hold()
        job = (step, self._number, state, time.monotonic() - begun)
        # Not a daemon: a program that exits finishes its last checkpoint.
        self._thread = threading.Thread(target=self._work, args=job, name=f"stayfinite checkpoint {step}")
        self._thread.start()

    def collect(self) -> list[Outcome]:
        """Results since the last call; does not wait. Warns once of trouble, again after a success."""
        self._warn()
        return [self._outcomes.popleft() for _ in range(len(self._outcomes))]

    def wait(self) -> list[Outcome]:
        """Wait for the current checkpoint, and return the results since the last call."""
        self._join()
        return self.collect()

    def hurry(self) -> None:
        """Wait only briefly for other ranks, because training has failed."""
        self._desk.hurry.set()

    def close(self) -> None:
        """Wait for the current checkpoint."""
        self._join()
        self._warn()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self, step: int, number: int, state: TrainingState, waited: float) -> None:
        begun = time.monotonic()
        path, trouble = None, None
        try:
            if self._desk.rank == 0:
                shelf.sweep(self._desk.directory)
            path = write_checkpoint(self._desk, step, number, state)
            if self._desk.rank == 0:
                shelf.keep_last(self._desk.directory, self._keep)
        except Exception as error:
            # Training continues; the caller gets the error from collect() or wait().
            trouble = error
        finally:
            if state.memory is not None:
                state.memory.release()
        outcome = Outcome(
            step=step,
            path=path,
            error=None if path is not None else trouble,
            nbytes=state.nbytes,
            seconds=time.monotonic() - begun,
            waited=waited,
        )
        self._outcomes.append(outcome)
        self._unspoken.append(outcome)

    def _warn(self) -> None:
        while self._unspoken:
            outcome = self._unspoken.popleft()
            if outcome.error is None:
                self._warned = False
            elif not self._warned:
                self._warned = True
                warnings.warn(
                    f"cannot write the checkpoint of step {outcome.step} to {self._desk.directory}: {outcome.error}. "
                    "Training continues; earlier checkpoints are kept.",
                    CheckpointWarning,
                    stacklevel=3,
                )
