"""Several acts after one start: ``stage.py MODULES FOLDER RANKS ACT...``; tests call `play`.

Loading torch takes a process longer than most acts do. So it is loaded once, with the modules, and every act on every
rank is a process of its own that is forked from there: with its own random numbers, its own group of ranks, its own
death. A rank finds in its environment what torchrun would put there.
An act is a JSON list: its name, then the arguments of the first module's ``main``.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from child_processes import PATIENCE, finish


@dataclass(frozen=True)
class Played:
    """An act that is over."""

    ends: list[int]
    """How it ended on each rank: its exit code, or minus the signal."""
    said: str
    """What it wrote, rank by rank."""

    def check(self) -> None:
        """It must have ended well on every rank."""
        assert not any(self.ends), f"ended with {self.ends}\n{self.said[-4000:]}"


def play(
    module: str,
    acts: Mapping[str, Sequence[object]],
    folder: Path,
    *,
    ranks: int | None = None,
    loads: Sequence[str] = (),
    timeout: float = PATIENCE,
) -> dict[str, Played]:
    """Play the acts one after the other, each on all ranks; returns how each of them ended.

    Arguments:
        module: whose ``main`` an act is; what it returns is the exit code, none is 0.
        acts: their names, which go into names of files, and the arguments of each.
        folder: for what the stage writes; one for each call.
        ranks: how many processes each act has; one that is no rank if none are given.
        loads: modules that are to be loaded before the acts besides.
        timeout: in seconds, for all acts together.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps([name, *map(str, arguments)]) for name, arguments in acts.items()]
    words = [__file__, ",".join([module, *loads]), folder, f"{ranks or 0}", *lines]
    done = finish([sys.executable, *words], timeout=timeout, logs=folder, warm=True)
    assert done.returncode == 0, done.stderr[-4000:]
    each = range(ranks or 1)
    return {
        name: Played(
            [int(_end(folder, name, rank).read_text()) for rank in each],
            "\n".join(_said(folder, name, rank).read_text(errors="replace") for rank in each),
        )
        for name in acts
    }


def play_ranks(module: str, folder: Path, acts: Iterable[str], timeout: float = PATIENCE) -> dict[str, list[Any]]:
    """Play the acts on two ranks, each in a folder of its own; returns what each rank left in its ``rank{n}.json``."""
    places = {act: folder / act for act in acts}
    for place in places.values():
        place.mkdir()
    lines = {act: (place, act) for act, place in places.items()}
    for each in play(module, lines, folder / "stage", ranks=2, timeout=timeout).values():
        each.check()
    return {
        act: [json.loads((place / f"rank{rank}.json").read_text()) for rank in range(2)]
        for act, place in places.items()
    }


def _end(folder: Path, act: str, rank: int) -> Path:
    return folder / f"{act}-{rank}.end"


def _said(folder: Path, act: str, rank: int) -> Path:
    return folder / f"{act}-{rank}.txt"


def main(modules: list[str], folder: Path, ranks: int, acts: list[list[str]]) -> None:
    script, *_ = map(importlib.import_module, modules)
    rank = 0
    while rank + 1 < ranks and not os.fork():
        rank += 1
    if ranks:
        os.environ |= _place(rank, ranks)
    for number, (name, *arguments) in enumerate(acts):
        door = folder / f"{name}.port"
        if rank == 0:
            _write(door, _free_port())
        _await([door])
        if not (child := os.fork()):
            log = os.open(_said(folder, name, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            # The first rank is where the others find it, in a place that no act before this one has used.
            os.environ["MASTER_PORT"] = door.read_text()
            ended = script.main(*arguments)
            if number + 1 == len(acts):
                sys.exit(ended)  # as a script ends, with all that was loaded taken down
            sys.stdout.flush()
            os._exit(ended or 0)  # to take it down takes longer than most acts do
        _write(_end(folder, name, rank), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        _await([_end(folder, name, other) for other in range(ranks)])
    if rank + 1 < ranks:
        os.wait()
    os._exit(0)


def _place(rank: int, ranks: int) -> dict[str, str]:
    """What torchrun tells a rank."""
    numbers = dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), f"{rank}")
    numbers |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), f"{ranks}")
    return numbers | {
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RUN_ID": "stage",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _write(path: Path, number: int) -> None:
    """At once: whoever sees the file can read it."""
    (part := path.with_name(f"{path.name}.part")).write_text(f"{number}")
    part.rename(path)


def _await(paths: list[Path]) -> None:
    while not all(path.exists() for path in paths):
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1].split(","), Path(sys.argv[2]), int(sys.argv[3]), [json.loads(line) for line in sys.argv[4:]])
