"""One schedule: attempts, and on every machine a supervisor that decides what follows from their end."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from benchmarks.simulated.attempt import Attempt, Broken, Rules, World
from benchmarks.simulated.disk import Disk
from benchmarks.simulated.faults import draw
from stayfinite.core.supervising import Ending, Move, Supervision, after, after_pause

PER_MACHINE = 8
RESTARTS = 5
JOIN_TIMEOUT = 600.0
"""Seconds that a launcher waits for the other machines before it gives its attempt up, as torchrun has it."""

STOP_CODE = 87
MOST_ROUNDS = 64
"""Attempts, begun or not, after which a schedule counts as one that never ends."""


@dataclass(slots=True)
class Machine:
    """Machines whose supervisors are in the same state."""

    number: int
    state: Supervision
    words: bool = False
    """Whether a rank of its own has left word of a stop."""

    ended: Move | None = None
    code: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a schedule."""

    seed: int
    end: str
    """`done`, `stopped`, `gave-up`; `broken` where a promise was not kept."""

    broken: str
    counts: Counter[str]


def play(seed: int, *, ranks: int = 4096, steps: int = 16, rules: Rules | None = None) -> Outcome:
    """Play one schedule to its end."""
    rng = np.random.default_rng(seed)
    rules = rules or Rules()
    world = World(rng, ranks, steps, draw(rng, ranks, steps), rules, Disk(rules.first_rank))
    try:
        return Outcome(seed, _play(world), "", world.counts)
    except Broken as broken:
        return Outcome(seed, "broken", str(broken), world.counts)


def _play(world: World) -> str:
    machines = _machines(world)
    for _ in range(MOST_ROUNDS):
        together = all(machine.ended is None for machine in machines)
        if together:
            if world.disk.stops:
                raise Broken("a training that was stopped was started again")
            attempt = Attempt(world)
            attempt.run()
            world.counts["attempts"] += 1
            endings = _endings(world, machines, attempt)
        else:
            # Some machines are done for good: the others wait for them in vain.
            world.now += JOIN_TIMEOUT
            world.counts["waits in vain"] += 1
            endings = {machine.number: Ending(code=1) for machine in machines if machine.ended is None}
        for machine in machines:
            if machine.ended is None:
                _decide(world, machine, endings[machine.number])
        if all(machine.ended is not None for machine in machines):
            return _end_of(world, machines)
    raise Broken("it never ends")


def _machines(world: World) -> list[Machine]:
    odd = sorted({rank // PER_MACHINE for rank in world.odd})
    rest = next((number for number in range(world.ranks // PER_MACHINE) if number not in odd), None)
    numbers = odd if rest is None else [*odd, rest]
    return [Machine(number, Supervision(most=RESTARTS, first_pause=10.0)) for number in numbers]


def _endings(world: World, machines: list[Machine], attempt: Attempt) -> dict[int, Ending]:
    """How the attempt looks from each machine. A launcher hides how its ranks ended, a word or the record does not."""
    endings = {}
    own = {kin.lowest // PER_MACHINE for kin in attempt.kin}
    rest = attempt.kin[-1] if len(attempt.kin) == 1 else max(attempt.kin, key=lambda kin: kin.ranks)
    for machine in machines:
        kin = [each for each in attempt.kin if each.lowest // PER_MACHINE == machine.number]
        kin = kin if machine.number in own else [rest]
        machine.words = any(each.over == "stopped" for each in kin)
        code = 0 if all(each.over == "done" for each in kin) else 1
        endings[machine.number] = Ending(code=code, began=attempt.began, stopped=STOP_CODE if machine.words else None)
    if any(kin.over == "stopped" for kin in attempt.kin):
        # It is written when what is under way has ended, which may take its time.
        world.disk.stops.append(world.now + float(world.rng.exponential(10.0)))
    return endings


def _decide(world: World, machine: Machine, ending: Ending) -> None:
    now = world.now + float(world.rng.uniform(0.0, 2.0))
    following, machine.state = after(_with_record(world, ending, now), machine.state)
    if following.move is Move.RESTART:
        world.counts["restarts"] += 1
        now += following.pause
        following = after_pause(_with_record(world, ending, now).stopped, None)
    if following.move is Move.RESTART:
        return
    machine.ended, machine.code = following.move, following.code


def _with_record(world: World, ending: Ending, now: float) -> Ending:
    """The same ending, with what the run's record says by then."""
    if ending.stopped is not None or not world.rules.shared_record or min(world.disk.stops, default=math.inf) > now:
        return ending
    return Ending(code=ending.code, began=ending.began, stopped=STOP_CODE)


def _end_of(world: World, machines: list[Machine]) -> str:
    moves = {machine.ended for machine in machines}
    if world.disk.stops:
        if moves - {Move.STOPPED} and not all(machine.state.restarts >= RESTARTS for machine in machines):
            raise Broken("a machine did not hear of the stop")
        return "stopped"
    if moves == {Move.DONE}:
        return "done"
    if Move.GIVE_UP in moves and Move.STOPPED not in moves:
        return "gave-up"
    raise Broken(f"machines ended in {len(moves)} ways")
