"""Multi-rank programs: re-runs must not wait for other ranks, and rank 0 reports for all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from stayfinite.doctor.replay import CannotReplay
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.told import PROVED

COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "gather",
    "scatter", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier", "send", "recv",
    "broadcast_object_list", "monitored_barrier",
)  # fmt: skip
SECONDS = 15.0
"""Seconds rank 0 waits for the others' findings after it has ended."""
IN_A_HURRY = 2.0
"""The same after a failure, when the others may never finish."""


def world_size() -> int:
    """Ranks in the process group; 1 without one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())


def rank() -> int:
    """This process's rank under torchrun."""
    return int(os.environ.get("RANK", "0"))


def started() -> int:
    """Processes started by torchrun; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_sharded(model: nn.Module) -> bool:
    """Whether parameters are sharded, so that no rank can run a step alone."""
    return any("FullyShardedDataParallel" in t.__name__ or "FSDP" in t.__name__ for m in model.modules()
               for t in type(m).__mro__)  # fmt: skip


@contextmanager
def alone(model: nn.Module) -> Iterator[None]:
    """Disable communication within this context: DDP does not sync, and a collective call ends the replay."""
    wrappers: list[Any] = [m for m in model.modules() if isinstance(m, nn.parallel.DistributedDataParallel)]
    if world_size() == 1 and not wrappers:
        yield
        return
    import torch.distributed

    before = [(m, m.require_backward_grad_sync, m.require_forward_param_sync) for m in wrappers]
    stand_ins = StandIns()
    for name in COLLECTIVES:
        if hasattr(torch.distributed, name):
            stand_ins.put(torch.distributed, name, _refuse)
    for wrapper in wrappers:
        wrapper.require_backward_grad_sync = wrapper.require_forward_param_sync = False
    try:
        yield
    finally:
        stand_ins.off()
        for wrapper, backward, forward in before:
            wrapper.require_backward_grad_sync, wrapper.require_forward_param_sync = backward, forward


def _refuse(*_: Any, **__: Any) -> None:
    raise CannotReplay("other ranks would have to take part")


def leave_word(findings: list[dict[str, Any]]) -> None:
    """Write this rank's findings for rank 0."""
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    written = folder / f"{rank()}.part"
    written.write_text(json.dumps(findings), encoding="utf-8")
    written.replace(folder / f"{rank()}.json")


def words_of_others(seconds: float) -> dict[int, list[dict[str, Any]]]:
    """Findings of the other local ranks, by rank; ranks that do not answer in time are omitted."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    missing = set(range(1, local))
    found: dict[int, list[dict[str, Any]]] = {}
    deadline = time.monotonic() + seconds
    while missing:
        for other in sorted(missing):
            place = _folder() / f"{other}.json"
            if place.is_file():
                found[other] = json.loads(place.read_text(encoding="utf-8"))
                place.unlink()
                missing.discard(other)
        if missing and time.monotonic() > deadline:
            break
        if missing:
            time.sleep(0.05)
    shutil.rmtree(_folder(), ignore_errors=True)
    return found


def with_other_ranks(findings: list[dict[str, Any]], *, hurry: bool) -> list[dict[str, Any]]:
    """Put findings proved on other ranks before those only seen on rank 0."""
    words = words_of_others(IN_A_HURRY if hurry else SECONDS)
    if findings and findings[0]["known_by"] == PROVED:
        return findings
    known: set[str] = set()
    proved: list[dict[str, Any]] = []
    for number, theirs in words.items():
        for each in theirs:
            if each["cause"] not in known:
                known.add(each["cause"])
                proved.append(each | {"evidence": [*each["evidence"], f"Seen on rank {number}."]})
    return [*proved, *(each for each in findings if not (proved and each["cause"] == "nan-loss"))]


def _folder() -> Path:
    """Exchange directory, unique per torchrun launch."""
    keys = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    name = "-".join([*(os.environ.get(key, "") for key in keys), str(os.getppid()), str(os.getuid())])
    return Path(tempfile.gettempdir()) / f"stayfinite-ranks-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
