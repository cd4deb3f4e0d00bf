"""Many random faults, drawn from one seed, each against a short training of its own."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock

from faults.kinds import KINDS, ON_ONE, ON_TWO
from faults.launching import Life, launch
from faults.short_training import Job, ModelKind, Sabotage
from faults.trial import Outcome, Trial

MODELS: tuple[ModelKind, ...] = ("mlp", "transformer")
SEEDS = 3
"""Different trainings of each model; each is run once without faults, to compare with."""


class FaultFree:
    """The trainings as they go without a fault; each is run once, when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, int, int], Future[Life]] = {}
        self._lock = Lock()

    def of(self, model: ModelKind, seed: int, ranks: int) -> Life:
        """How this training ends when nothing happens."""
        key = (model, seed, ranks)
        with self._lock:
            future, mine = self._known.get(key), key not in self._known
            if future is None:
                future = self._known[key] = Future()
        if mine:
            job = Job(folder=self._folder / f"{model}-{seed}-{ranks}", model=model, seed=seed, ranks=ranks)
            try:
                life = launch(job, 0, lambda number, rank: Sabotage(random.Random(0), number, rank))
                if not life.finished:
                    raise RuntimeError(f"the training without a fault failed: {life.exit_codes} {life.log[-2000:]}")
                future.set_result(life)
            except BaseException as error:
                future.set_exception(error)
        return future.result()


def draw(count: int, seed: int, ranks_share: float = 0.05) -> list[str]:
    """The kinds of a campaign: all of them about equally often, in random order."""
    chance = random.Random(seed)
    on_two = min(count, round(count * ranks_share))
    names = [*_in_turn(list(ON_TWO), on_two, chance), *_in_turn(list(ON_ONE), count - on_two, chance)]
    chance.shuffle(names)
    return names


def meet(name: str, number: int, seed: int, folder: Path, fault_free: FaultFree) -> Outcome:
    """The ``number``-th fault of a campaign. What it left on disk is removed if it ended well."""
    chance = random.Random(f"{seed}-{number}-{name}")
    ranks = 2 if name in ON_TWO else 1
    model: ModelKind = chance.choice(MODELS) if ranks == 1 else "mlp"
    training_seed = chance.randrange(SEEDS) if ranks == 1 else 0
    job = Job(
        folder=folder / f"fault-{number:04d}",
        model=model,
        seed=training_seed,
        ranks=ranks,
        keep=chance.choice([3, 1000]),
    )
    trial = Trial(name, job, chance, fault_free.of(model, training_seed, ranks))
    outcome = KINDS[name](trial)
    if outcome.right:
        shutil.rmtree(job.folder, ignore_errors=True)
    return outcome


def campaign(count: int, seed: int, folder: Path, *, ranks_share: float = 0.05, jobs: int = 2) -> Iterator[Outcome]:
    """Run a campaign, ``jobs`` faults at a time; outcomes come as they are known."""
    fault_free = FaultFree(folder / "fault-free")
    with ThreadPoolExecutor(jobs) as pool:
        todo = [
            pool.submit(meet, name, number, seed, folder, fault_free)
            for number, name in enumerate(draw(count, seed, ranks_share))
        ]
        for done in as_completed(todo):
            yield done.result()


def _in_turn(names: list[str], count: int, chance: random.Random) -> list[str]:
    drawn: list[str] = []
    while len(drawn) < count:
        drawn += chance.sample(names, len(names))
    return drawn[:count]
