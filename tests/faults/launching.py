"""Starts a job's processes, waits for them within a limit, and says how they ended.

Processes are forked from a server that has torch loaded already, so that a start takes a hundredth of a second and not
five. Nothing runs in that server, so there are no threads to lose.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.short_training import Job, Sabotage, train

LIMIT = 150.0
"""Seconds that one life of a job may take; a healthy one takes less than two."""

PRELOAD = [
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.distributed.checkpoint.state_dict",
    "torch.nn.parallel",
    "numpy",
    "stayfinite.guard.guard",
    "faults.short_training",
]

# The server's answers are read from one pipe for each process; two threads must not read the same one.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Life:
    """How the processes of one launch ended."""

    exit_codes: list[int | None]
    """One a rank, as multiprocessing tells it: negative for a signal, None for one that had to be ended."""
    results: list[dict[str, Any] | None]
    """What each rank wrote at its end."""
    log: str
    """What the ranks said."""

    @property
    def hung(self) -> bool:
        """Whether a process had to be ended."""
        return None in self.exit_codes

    @property
    def finished(self) -> bool:
        """Whether training went to its end on every rank."""
        return all(code == 0 for code in self.exit_codes) and None not in self.results

    @property
    def result(self) -> dict[str, Any]:
        """What rank 0 wrote."""
        return self.results[0] or {}

    def says(self, *words: str) -> bool:
        """Whether all of these stand in the log."""
        return all(each in self.log for each in words)


SabotageFactory = Callable[[int, int], Sabotage]
"""Given the launch and the rank."""


def launch(job: Job, number: int, sabotage: SabotageFactory, limit: float = LIMIT) -> Life:
    """Run the ``number``-th life of a job to its end, or to the limit."""
    job.folder.mkdir(parents=True, exist_ok=True)
    context = _server()
    processes = []
    with _one_at_a_time:
        for rank in range(job.ranks):
            process = context.Process(target=_live, args=(job, sabotage(number, rank)))
            process.start()
            processes.append(process)
    deadline = time.monotonic() + limit
    codes = [_await(process, deadline) for process in processes]
    results = [_read(job.folder / f"result-{number}-{rank}.json") for rank in range(job.ranks)]
    logs = [_log(job, number, rank) for rank in range(job.ranks)]
    return Life(codes, results, "\n".join(log.read_text(errors="replace") for log in logs if log.exists()))


def _server() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    here = str(Path(__file__).parents[1])
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # The server is started with this environment, and knows nothing of what this process has put on its own path.
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([here, *filter(None, known)]))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return context


def _live(job: Job, sabotage: Sabotage) -> None:
    log = os.open(_log(job, sabotage.launch, sabotage.rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        train(job, sabotage)
    except SystemExit:
        raise
    except BaseException:
        sabotage.at_end()
        # As at the end of a script: the hook in force decides on the exit code.
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        raise SystemExit(1) from None


def _await(process: Any, deadline: float) -> int | None:
    while True:
        with _one_at_a_time:
            code = process.exitcode
        if code is not None:
            return int(code)
        if time.monotonic() > deadline:
            process.kill()
            return None
        time.sleep(0.01)


def _log(job: Job, number: int, rank: int) -> Path:
    return job.folder / f"log-{number}-{rank}.txt"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    assert isinstance(result, dict)
    return result
