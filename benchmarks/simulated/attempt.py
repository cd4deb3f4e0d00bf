"""One attempt at a training: all ranks step by step, until they are done, stopped, or a crash takes them along."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks.simulated.disk import Disk, Pending, Share
from benchmarks.simulated.faults import Fault, Planned
from benchmarks.simulated.kin import Kin, SimulatedRing, State
from stayfinite.core.decision import Action
from stayfinite.core.judge import Judgement, Memory, after_rollback, judge
from stayfinite.core.keeping import Agreement, Keeping, SnapshotCadence
from stayfinite.core.policy import Policy
from stayfinite.core.sharing import Turn, first_rank
from stayfinite.core.signals import Signals
from stayfinite.core.stalls import Beat, Kind, Phase, find_stall, limit_of

TIMEOUT = 600.0
"""Of a collective, in seconds, as NCCL has it."""

STEP_SECONDS = 1.0
POLICY = Policy(
    window=8, warmup=2, max_vetoes_in_a_row=1, patience=1, max_cuts=1, cut_steps=2, max_rollbacks=2, prove_steps=2,
    max_vetoes=20, checkpoint_steps=4, checkpoint_minutes=1.0, calm_steps=4,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The protocols that are put to the test: those of the product. Tests put broken ones in their place."""

    keeping: Callable[[SimulatedRing, SnapshotCadence], Keeping] = Keeping
    first_rank: Callable[..., Turn] = first_rank
    shared_record: bool = True
    """Whether supervisors look into the run's record, besides what their own machine's ranks have left word of."""


class Broken(Exception):
    """A promise was not kept; what comes after it means nothing."""


@dataclass(slots=True)
class World:
    """What is shared by all attempts of a schedule."""

    rng: np.random.Generator
    ranks: int
    steps: int
    faults: list[Planned]
    rules: Rules
    disk: Disk
    odd: list[int] = field(init=False)
    """The ranks that something happens to, and the first: each is its own kin, in every attempt."""

    now: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.odd = sorted({0, *(fault.rank for fault in self.faults)})

    def clock(self) -> float:
        """Seconds."""
        return self.now


class Attempt:
    """From a start or a restart to its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        lowest = world.odd
        sizes = dict.fromkeys(lowest, 1)
        # All others are one kin; its lowest number is one that no other has.
        rest = next((rank for rank in range(world.ranks) if rank not in sizes), None)
        if rest is not None:
            sizes[rest] = world.ranks - len(lowest)
        self.kin = [Kin(rank, count, POLICY, world.rules.keeping, world.clock) for rank, count in sorted(sizes.items())]
        # Judged apart from the first rank's: equal memories have to lead to equal decisions.
        others = Memory()
        for kin in self.kin[1:]:
            kin.memory = others
        self._pending: Pending | None = None
        self._recent: list[float] = []
        self._longest = 0.0
        self.began = self._resume()
        self.step = self.began

    def run(self) -> None:
        """Take steps until every kin has ended."""
        while self.step < self._world.steps and all(not kin.over for kin in self.kin):
            self._take_step()
        for kin in self.kin:
            kin.over = kin.over or ("done" if self.step >= self._world.steps else "crashed")
        self._settle_pending(
            {kin.lowest: self._world.now + self._last_seconds() for kin in self.kin if kin.over != "done"}
        )

    # -- one step ----------------------------------------------------------------------------------------------------

    def _take_step(self) -> None:
        world, step = self._world, self.step + 1
        began = world.now
        if not self._arrive(step):
            return
        signals = self._signals(step)
        got = self._meet(step)
        world.counts["steps"] += 1
        judged: dict[tuple[int, Any], Judgement] = {}
        decisions = []
        for kin in got:
            options = kin.options()
            # The same memory, numbers and options: by purity the same judgment.
            known = (id(kin.memory), options)
            if known not in judged:
                judged[known] = judge(signals, kin.memory, POLICY, options=options)
            decisions.append((kin, judged[known]))
        if len({(each.decision.action, each.decision.code, each.decision.reason) for _, each in decisions}) > 1:
            raise Broken("two decisions at one step")
        for kin, judgement in decisions:
            self._act(kin, judgement, step)
        if len(got) < len(self.kin):
            self._fail()
            return
        self.step = step
        self._recent = [*self._recent[-31:], world.now - began]
        decision = decisions[0][1].decision
        world.counts[f"action {decision.action}"] += 1
        if decision.action is Action.STOP:
            return
        if decision.action is not Action.ROLLBACK:
            for kin in self._hit(step, Fault.POISON):
                kin.poisoned = kin.poisoned or not decision.refused
        self._agree([kin.keeping.decided(step, refused=decision.refused, in_doubt=False) for kin in self.kin])
        if self._hit(step, Fault.CRASH_AFTER) or self._damage(step):
            self._fail()
            return
        self._between_steps(step)

    def _arrive(self, step: int) -> bool:
        """Everybody comes to the all-reduce, in time or not; the slowest sets the pace."""
        world = self._world
        delays = world.rng.exponential(0.02 * STEP_SECONDS, world.ranks)
        late = self._faults(step, Fault.LATE)
        hung = self._faults(step, Fault.HANG)
        for fault in late:
            delays[fault.rank] += fault.size
        slowest = float(delays.max())
        limit = limit_of(self._recent, self._longest, floor=120.0, timeout=TIMEOUT)
        if hung or slowest > limit:
            self._watch(step, delays, {fault.rank for fault in hung}, limit)
        if self._hit(step, Fault.CRASH_BEFORE):
            self._fail()
            return False
        if hung:
            world.now += TIMEOUT
            self._fail()
            return False
        world.now += STEP_SECONDS + slowest
        if len(self._recent) > 1:
            self._longest = max(self._longest, slowest)
        return True

    def _watch(self, step: int, delays: np.ndarray, hung: set[int], limit: float) -> None:
        """What the watchdog says early on, or shortly before the time-out."""
        world = self._world
        waited = 1.2 * limit if world.rng.random() < 0.5 else 0.75 * TIMEOUT
        beats = [
            Beat(
                rank=rank,
                step=step,
                phase=Phase.OUTSIDE if rank in hung or delay > waited else Phase.MEETING,
                quiet=waited,
                still=0.1 if delay > waited and rank not in hung else waited,
                waits=not (rank in hung or delay > waited),
            )
            for rank, delay in enumerate(delays.tolist())
        ]
        stall = find_stall(beats, world.ranks, limit=limit, timeout=TIMEOUT)
        away = {rank for rank, delay in enumerate(delays.tolist()) if rank in hung or delay > waited}
        if hung and (stall is None or stall.kind is not Kind.HUNG or set(stall.ranks) != hung):
            raise Broken("a rank that hangs was not named")
        if not hung and stall is not None and (waited < 0.7 * TIMEOUT or set(stall.ranks) != away):
            raise Broken("a rank that works was named")
        world.counts["hangs named"] += bool(hung)
        world.counts["delays left alone"] += not hung

    def _signals(self, step: int) -> Signals:
        """The numbers of all ranks together: a mean, and who was bad."""
        bad = tuple(
            kin.lowest
            for kin in self.kin
            if kin.poisoned
            or any(
                fault.rank == kin.lowest and fault.step <= step < fault.step + fault.size
                for fault in self._world.faults
                if fault.fault is Fault.NAN
            )
        )
        value = math.nan if bad else 2.0 - 0.01 * step
        return Signals(step=step, loss=value, grad_norm=value, lr=1e-3, bad_ranks=bad, bad_count=len(bad))

    def _meet(self, step: int) -> list[Kin]:
        """The kin that have the sum; all of them unless a rank dies within the all-reduce."""
        dead = self._hit(step, Fault.CRASH_WITHIN)
        if not dead:
            return self.kin
        return [kin for kin in self.kin if kin not in dead and self._world.rng.random() < 0.5]

    def _act(self, kin: Kin, judgement: Judgement, step: int) -> None:
        kin.memory = judgement.memory
        if judgement.decision.action is Action.ROLLBACK:
            good = kin.ring.good
            assert good is not None
            kin.poisoned = good.poisoned
            kin.memory = after_rollback(judgement.memory, good.memory)
            kin.keeping.cadence.put_off(step)
        elif judgement.decision.action is Action.STOP:
            kin.over = "stopped"

    def _between_steps(self, step: int) -> None:
        due = self._agree([kin.checkpoints.due(step) for kin in self.kin])
        if len(set(due)) > 1:
            raise Broken("a checkpoint is due on some ranks only")
        short = {
            fault.rank
            for fault in self._world.faults
            if fault.fault is Fault.NO_MEMORY and fault.step <= step < fault.step + fault.size
        }
        if not due[0]:
            self._agree(
                [
                    kin.keeping.snapshot_if_due(step, partial(self._snapshot, kin, kin.lowest in short))
                    for kin in self.kin
                ]
            )
            return
        self._settle_pending({})
        self._agree([kin.keeping.make_room() for kin in self.kin])
        pending = Pending(self._world.now)
        for kin in self.kin:
            kin.checkpoints.saved(step)
        failed = self._agree([self._saved(kin, step, pending, kin.lowest in short) for kin in self.kin])
        if any(failed) != all(failed):
            raise Broken("a checkpoint is written by some ranks only")
        if not failed[0]:
            self._pending = pending
        for kin in self.kin:
            kin.keeping.cadence.put_off(step)

    def _snapshot(self, kin: Kin, short: bool, step: int) -> str:
        return self._copy(kin, step, short)

    def _saved(self, kin: Kin, step: int, pending: Pending, short: bool) -> Agreement[str]:
        return kin.keeping.save(partial(self._copy, kin, step, short), partial(self._write, kin, step, pending))

    def _copy(self, kin: Kin, step: int, short: bool) -> str:
        if short:
            return "no memory"
        if kin.keeping.ring is not None:
            kin.ring.take(State(step, kin.poisoned, kin.memory))
        return ""

    def _write(self, kin: Kin, step: int, pending: Pending) -> None:
        world = self._world
        near = [each for each in world.faults if each.rank == kin.lowest and 0 <= step - each.step < 4]
        seconds = 2.0 + float(world.rng.exponential(0.5) if kin.ranks == 1 else world.rng.exponential(0.5, 64).max())
        seconds += sum(each.size for each in near if each.fault is Fault.SLOW_DISK)
        if any(each.fault is Fault.SILENT_DISK for each in near):
            seconds = math.inf
        full = any(each.fault is Fault.FULL_DISK for each in near)
        pending.shares[kin.lowest] = Share(step, kin.poisoned, seconds, kin.poisoned or full, kin.ranks, kin.memory)

    # -- agreeing ----------------------------------------------------------------------------------------------------

    def _agree(self, protocols: Sequence[Agreement[Any]]) -> list[Any]:
        """Run a protocol on all kin in step. They have to come to the same collectives, or wait for ever."""
        answers: list[Any] = [None] * len(protocols)
        numbers: list[int] | None = None
        while True:
            asked, ended = [], 0
            for place, protocol in enumerate(protocols):
                try:
                    asked.append(next(protocol) if numbers is None else protocol.send(max(numbers)))
                except StopIteration as end:
                    answers[place] = end.value
                    ended += 1
            if ended == len(protocols):
                return answers
            if ended:
                raise Broken("some ranks wait in a collective that others never come to")
            self._world.counts["agreements"] += 1
            numbers = asked

    # -- faults ------------------------------------------------------------------------------------------------------

    def _faults(self, step: int, kind: Fault) -> list[Planned]:
        """Those of this step, which do not happen again."""
        found = [fault for fault in self._world.faults if fault.fault is kind and fault.step == step]
        for fault in found:
            self._world.faults.remove(fault)
        return found

    def _hit(self, step: int, kind: Fault) -> list[Kin]:
        ranks = {fault.rank for fault in self._faults(step, kind)}
        return [kin for kin in self.kin if kin.lowest in ranks]

    def _damage(self, step: int) -> bool:
        if not self._faults(step, Fault.DAMAGED):
            return False
        finished = self._world.disk.finished
        if finished:
            last = finished[-1]
            finished[-1] = type(last)(last.step, last.shares, damaged=True)
        return True

    def _fail(self) -> None:
        """A rank is gone: all that have not stopped fail at their next collective."""
        for kin in self.kin:
            kin.over = kin.over or "crashed"

    def _last_seconds(self) -> float:
        """Seconds that a failed process goes on writing its share: up to 10, unless its launcher is faster."""
        return float(self._world.rng.uniform(0.0, 10.0))

    def _settle_pending(self, until: dict[int, float]) -> None:
        if self._pending is None:
            return
        world, before = self._world, len(self._world.disk.finished)
        done = world.disk.settle(self._pending, until)
        world.now = max(world.now, done if math.isfinite(done) else world.now)
        self._pending = None
        for checkpoint in world.disk.finished[before:]:
            world.counts["checkpoints"] += 1
            shares = checkpoint.shares.values()
            if any(share.poisoned for share in shares):
                raise Broken("a poisoned checkpoint")
            if sum(share.ranks for share in shares) != world.ranks or len({share.step for share in shares}) > 1:
                raise Broken("a checkpoint of several steps, or not of all ranks")

    def _resume(self) -> int:
        newest = self._world.disk.newest()
        if newest is None:
            return 0
        if any(share.poisoned for share in newest.shares.values()):
            raise Broken("resumed from a poisoned checkpoint")
        remembered = newest.shares[0].notes
        for kin in self.kin:
            kin.memory = newest.shares[kin.lowest].notes if kin.lowest in newest.shares else remembered
            kin.checkpoints.saved(newest.step)
        return newest.step
