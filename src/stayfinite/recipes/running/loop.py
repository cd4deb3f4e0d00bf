"""The guarded loop of a recipe: steps, log lines, evaluations, the best model."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stayfinite.core.policy import Policy
from stayfinite.guard.guard import Guard
from stayfinite.recipes.running.directories import alone
from stayfinite.recipes.running.launch import Launch
from stayfinite.recipes.running.logbook import Logbook, telling
from stayfinite.recipes.running.records import (
    Best,
    first_and_last,
    losses_of,
    require_one_finite,
    seconds_of,
    write_end,
)
from stayfinite.recipes.running.sharding import Team
from stayfinite.recipes.running.timing import TimedSchedule

Batch = TypeVar("Batch")
STREAM_EVAL_STEPS = 1000
"""Steps between evaluations of a stream, whose passes may take days."""


def grouped(batches: Iterable[Batch], size: int, *, over: Callable[[], bool] = lambda: False) -> Iterator[list[Batch]]:
    """Groups of ``size`` batches; the last of an epoch may be smaller.

    Arguments:
        over: whether training ends; checked before batches are read.
    """
    source = iter(batches)
    while not over() and (group := list(islice(source, size))):
        yield group


def sending(model: nn.Module, *, now: bool) -> AbstractContextManager[Any]:
    """Context for one batch of a step: DDP syncs gradients only for the last (``now``)."""
    return nullcontext() if now or not isinstance(model, DistributedDataParallel) else model.no_sync()


@dataclass(slots=True, kw_only=True)
class Loop:
    """What a recipe does between its first step and its result."""

    launch: Launch
    team: Team
    guard: Guard
    scheduler: Any
    policy: Policy
    tell: Callable[[int, Mapping[str, float]], None]
    """Sends scores to the loggers."""
    logbook: Logbook
    best: Best
    resumed: int = 0
    """Steps of earlier processes."""
    earlier: float = 0.0
    """Seconds of earlier processes."""
    began: float = field(default_factory=time.monotonic)

    @property
    def taken(self) -> int:
        """Steps taken, with those of earlier processes."""
        return self.logbook.steps_taken

    def resume(self) -> int:
        """Resume from the newest good checkpoint, if any. Returns its step."""
        earlier = seconds_of(self.launch.output)
        self.resumed = self.guard.resume()
        if self.resumed:
            self.earlier = earlier
            if not self.launch.finished:
                self.launch.say(f"resumed after step {self.resumed}")
            self.logbook.resume(self.resumed)
            self.best.recall(self.resumed)
        return self.resumed

    def record_end(self) -> None:
        """Write the end of a training that is limited by minutes to run.json."""
        if self.launch.place.first and isinstance(self.scheduler, TimedSchedule):
            write_end(self.launch.output, self.launch.config.minutes, used=self.scheduler.seconds / 60)

    def groups(
        self,
        loader: Any,
        size: int,
        epochs: int | None,
        *,
        over: Callable[[], bool],
        evaluate: Callable[[str], None],
        every: int = 0,
        due: Callable[[int], bool] = lambda _: True,
    ) -> Iterator[list[Any]]:
        """Batches of each step, epoch by epoch, with evaluations in between.

        Arguments:
            size: batches per step.
            epochs: None for as many as it takes, as in a stream, whose steps are estimates.
            over: whether training ends; checked before batches are read.
            evaluate: receives the step or epoch in words. Also called at the end.
            every: steps between evaluations; 0 evaluates after epochs.
            due: whether to evaluate after this epoch, counted from 1.
        """
        if every and self.resumed and self.resumed % every == 0:
            evaluate(f"step {self.resumed}")  # the process may have ended right before it
        batches = self.guard.batches(loader)
        for epoch in count(1):
            for group in grouped(batches, size, over=over):
                yield group
                if every and self.taken % every == 0:
                    evaluate(f"step {self.taken}")
            last = over() or epoch == epochs
            whole = batches.place == (epoch, -1)  # false for an epoch that an earlier process finished
            if last or (not every and whole and due(epoch)):
                evaluate(f"step {self.taken}" if every else f"epoch {epoch}")
            if last or self.impatient:
                return

    def step(
        self,
        batches: Sequence[Any],
        shares: Sequence[float],
        amount: Callable[[Any], Tensor | int],
        *,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        signals: Callable[[float], dict[str, Any]] = lambda _: {},
        **noted: Any,
    ) -> None:
        """Take one step over these batches.

        Arguments:
            shares: weight of each batch in the loss of the step.
            amount: units in a batch, for the speed.
            around: context of a forward pass.
            signals: more for ``guard.backward``, by the weight of the batch.
            noted: more for the log line.
        """
        for number, (batch, share) in enumerate(zip(batches, shares, strict=True), 1):
            with sending(self.team.trained, now=number == len(batches)):
                with around():
                    loss = self.guard.forward(batch)
                self.guard.backward(loss * share, **signals(share))
            self.logbook.add(loss, amount(batch), **{"weight": share, **noted})
        self.guard.step()
        self.logbook.step(self.scheduler.get_last_lr()[0])

    def over(self, limit: int | None, *, stop_early: bool = True) -> bool:
        """Whether to stop, by rank 0's clock, by steps, or by patience.

        Arguments:
            limit: steps.
            stop_early: whether patience counts here.
        """
        timed_out = isinstance(self.scheduler, TimedSchedule) and self.scheduler.ends()
        return timed_out or (limit is not None and self.taken >= limit) or (stop_early and self.impatient)

    @property
    def impatient(self) -> bool:
        """Whether patience ran out on rank 0."""
        return bool(self.best.patience and self.launch.place.from_first(self.best.over))

    @property
    def evaluated(self) -> bool:
        """Whether the model was evaluated after this step already."""
        return bool(self.launch.place.from_first(self.best.knows(self.taken)))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Context of an evaluation: the whole model is up to date, and the time does not count for the speed."""
        self.guard.flush()
        with self.logbook.rest():
            self.team.gather()
            yield

    def judge(
        self,
        where: str,
        scores: Mapping[str, Any],
        words: str,
        save: Callable[[Path], None] | None,
        *,
        told: Sequence[str] | None = None,
        sound: bool = True,
    ) -> None:
        """Report scores, and save the model on rank 0 if it is the best so far.

        Arguments:
            where: step or epoch.
            told: names of the scores for loggers; by default all.
            sound: False for a model that must not be saved.
        """
        better = self.launch.place.first and self.best.judge(self.taken, scores, save if sound else None) and sound
        self.tell(self.taken, {name: scores[name] for name in told or scores})
        self.launch.say(f"{where}: {words}{'  (best so far)' if better else ''}")

    def finish(self, *, checkpoint: bool = True) -> None:
        """Write the last checkpoint, with the time used. Raises TrainingDiverged if nothing was trained."""
        self.logbook.finish()
        every = self.policy.checkpoint_steps
        timed = getattr(self.launch.config, "minutes", None) is not None
        # The guard counts from the checkpoint that it resumed from.
        kept = not timed and every is not None and (self.taken - self.resumed) % every == 0
        if checkpoint and self.taken > self.resumed and not kept:
            self.guard.checkpoint()
        self.guard.flush()
        self.launch.place.wait()
        require_one_finite(self.launch.output, self.taken)

    def numbers(self) -> dict[str, Any]:
        """What every result has, for its dataclass."""
        first, last = first_and_last(losses_of(self.launch.output))
        seconds = self.earlier + (time.monotonic() - self.began if self.taken > self.resumed else 0.0)
        return {
            "first_loss": first, "last_loss": last, "steps": self.taken, "seconds": seconds,
            "directory": self.launch.output,
        }  # fmt: skip


@contextmanager
def guarded(
    launch: Launch,
    team: Team,
    optimizer: Any,
    scheduler: Any,
    scaler: Any = None,
    *,
    policy: Policy,
    steps: int | None,
    metric: str,
    lowest: bool = False,
    unit: str = "tokens",
    loggers: Sequence[Any] | None = None,
    **guarding: Any,
) -> Iterator[Loop]:
    """The guarded loop of a recipe.

    Arguments:
        steps: planned; None if unknown.
        metric: the score that decides which model is the best; higher is better unless ``lowest``.
        loggers: by default those of the settings.
        guarding: more for the guard, such as ``forward`` of the trained module.
    """
    config, place, output = launch.config, launch.place, launch.output
    until = scheduler.left if isinstance(scheduler, TimedSchedule) else lambda: None
    logbook = Logbook(
        launch.say, steps=steps, every=config.logging_steps, unit=unit, until=until, total=place.total_of_rows
    )
    best = Best(output, metric=metric, lowest=lowest, patience=getattr(config, "patience", 0))
    names = config.log_to if loggers is None else loggers
    with alone(output, place), telling(names if place.first else (), output) as tell, Guard(
        team.trained, optimizer, scheduler, scaler, policy=policy, run_dir=output, **guarding
    ) as guard:  # fmt: skip
        yield Loop(
            launch=launch, team=team, guard=guard, scheduler=scheduler, policy=policy, tell=tell, logbook=logbook,
            best=best,
        )  # fmt: skip
