"""Write one checkpoint: to a temporary directory, verified, synced, renamed. Every rank writes its share.

Ranks coordinate through the directory, not by a collective, so this can run in a thread beside training's own
collectives: each leaves a report when its files are safe, and rank 0 finishes when all reports are there.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from stayfinite.core.sharing import Turn, first_rank, other_rank
from stayfinite.errors import PoisonedState, StateError
from stayfinite.state import shelf
from stayfinite.state.contents import files_of, state_file, state_text, whole_forms
from stayfinite.state.likeness import keys_digest
from stayfinite.state.shelf import NAME, Manifest, read_manifest
from stayfinite.state.training import TrainingState
from stayfinite.state.writer import Written, read_back, sync_directory, write_bytes, write_tensors

SHOWN = 5
POLL = 0.05
LAST_PATIENCE = 10.0
"""Longest wait for another rank after this training failed or its program ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """Where and as which rank a process writes checkpoints."""

    directory: Path
    """Parent of all checkpoints; on shared storage if there are several ranks."""

    token: str
    """Identifies the job; the same on all ranks."""

    rank: int = 0
    ranks: int = 1

    patience: float = 600.0
    """Seconds to wait for another rank before the checkpoint is given up."""

    hurry: threading.Event = field(default_factory=threading.Event)
    """Set when training has failed here: other ranks get only a short wait then."""


def write_checkpoint(desk: Desk, step: int, number: int, state: TrainingState) -> Path:
    """Write this rank's share of a checkpoint; return when the whole checkpoint has its final name.

    Arguments:
        step: last step that the state contains.
        number: of this checkpoint in this process; the same on all ranks.
        state: must not change meanwhile.

    Raises:
        PoisonedState: it has NaN or infinity; nothing is left on disk.
        OSError: disk error; nothing is left on disk.
        StateError: the content on disk differs, or another rank failed; nothing is left on disk.
    """
    partial = desk.directory / shelf.partial_name(step, number, desk.token)
    error: Exception | None = None
    files: dict[str, Written] = {}
    try:
        if bad := state.poisoned():
            raise PoisonedState(
                f"the state of step {step} was not saved: {len(bad)} tensors hold NaN or inf, first "
                f"{', '.join(bad[:SHOWN])}",
                fix="return to an earlier checkpoint; the last good one was kept",
            )
        partial.mkdir(parents=True, exist_ok=True)
        files = _write_share(desk, partial, step, state)
    except (OSError, StateError) as caught:
        error = caught
    try:
        if desk.ranks > 1:
            _report(desk, partial, files, error)
        if error is not None:
            raise error
        return _finish(desk, partial, step, state, files) if desk.rank == 0 else _await_finish(desk, partial, step)
    except BaseException:
        if desk.rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_share(desk: Desk, partial: Path, step: int, state: TrainingState) -> dict[str, Written]:
    files = {
        state_file(desk.rank): write_bytes(
            partial / state_file(desk.rank), state_text(state, step, desk.rank, desk.ranks)
        )
    }
    for name, (tensors, metadata) in files_of(state, desk.rank, desk.ranks):
        files[name] = write_tensors(partial / name, tensors, metadata)
        _check_opens(partial / name, tensors)
    for name, written in files.items():
        if (there := read_back(partial / name)) != written:
            raise StateError(f"{name} was not fully written: {there.bytes} of {written.bytes} bytes")
    return files


def _check_opens(path: Path, tensors: dict[str, Tensor]) -> None:
    try:
        with safe_open(path, framework="pt") as file:
            forms = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise StateError(f"cannot read {path.name} back: {error}") from error
    if forms != {name: list(tensor.shape) for name, tensor in tensors.items()}:
        raise StateError(f"{path.name} differs from what was written")


def _finish(desk: Desk, partial: Path, step: int, state: TrainingState, own: dict[str, Written]) -> Path:
    files: dict[str, Any] = {name: written.to_json() for name, written in own.items()}
    for report in _await_reports(desk, partial):
        files |= report["files"]
    for rank in range(desk.ranks):
        (partial / _report_name(rank)).unlink(missing_ok=True)
    before = shelf.finished(desk.directory)
    manifest = Manifest(
        step=step,
        serial=before[0][1].serial + 1 if before else 1,
        files=dict(sorted(files.items())),
        keys_digest=keys_digest(state.tree, whole_forms(state)),
        ranks=desk.ranks,
        sharded=bool(state.shards),
        written_as=partial.name,
    )
    sync_directory(partial)
    write_bytes(partial / NAME, manifest.to_json().encode())
    sync_directory(partial)
    final = shelf.put_up(partial, step)
    sync_directory(desk.directory)
    return final


def _report(desk: Desk, partial: Path, files: dict[str, Written], error: Exception | None) -> None:
    report = {
        "rank": desk.rank,
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "files": {name: written.to_json() for name, written in files.items()},
    }
    aside = partial / f"{_report_name(desk.rank)}.aside"
    # If a rank cannot even report, rank 0 runs into its timeout.
    with contextlib.suppress(OSError):
        partial.mkdir(parents=True, exist_ok=True)
        write_bytes(aside, json.dumps(report).encode())
        aside.rename(partial / _report_name(desk.rank))


def _report_name(rank: int) -> str:
    return f".rank-{rank:05d}.json"


class _Patience:
    """Deadline for another rank; shortened once this process only waits to end."""

    def __init__(self, desk: Desk) -> None:
        self._begun = time.monotonic()
        self._deadline = self._begun + desk.patience
        self._hurry = desk.hurry
        self._ending = False

    @property
    def waited(self) -> float:
        return time.monotonic() - self._begun

    def spent(self) -> bool:
        now = time.monotonic()
        if not self._ending and (self._hurry.is_set() or not threading.main_thread().is_alive()):
            self._ending, self._deadline = True, min(self._deadline, now + LAST_PATIENCE)
        return now > self._deadline


def _await_reports(desk: Desk, partial: Path) -> list[dict[str, Any]]:
    """Reports of all other ranks, for rank 0.

    Raises:
        StateError: one of them failed, or did not report in time.
    """
    awaited = {_report_name(rank): rank for rank in range(1, desk.ranks)}
    reports: list[dict[str, Any]] = []
    patience = _Patience(desk)
    while True:
        # List the directory once: thousands of files on shared storage are not queried one by one.
        for name in awaited.keys() & _listed(partial):
            reports.append(json.loads((partial / name).read_text(encoding="utf-8")))
            del awaited[name]
        failed = [report for report in reports if report["error"]]
        turn = first_rank(awaited=len(awaited), failed=bool(failed), spent=patience.spent())
        if turn is Turn.FINISH:
            return sorted(reports, key=lambda report: int(report["rank"]))
        if failed:
            raise StateError(f"rank {failed[0]['rank']} could not write its shard: {failed[0]['error']}")
        if turn is Turn.GIVE_UP:
            ranks = sorted(awaited.values())
            more = f" and {len(ranks) - SHOWN:,} more" if len(ranks) > SHOWN else ""
            named = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:SHOWN]))}{more}"
            raise StateError(f"no answer from {named} for {patience.waited:.0f} s; checkpoint abandoned")
        time.sleep(POLL)


def _listed(directory: Path) -> set[str]:
    try:
        return {path.name for path in directory.iterdir()}
    except OSError:
        return set()


def _await_finish(desk: Desk, partial: Path, step: int) -> Path:
    patience = _Patience(desk)
    while True:
        # In this order: the rename removes the one and creates the other.
        aside = partial.exists()
        final = None if aside else _named(desk, partial, step)
        turn = other_rank(aside=aside, named=final is not None, spent=patience.spent())
        if final is not None:
            return final
        if turn is Turn.GIVE_UP and aside:
            raise StateError(f"rank 0 did not finish the checkpoint within {patience.waited:.0f} s")
        if turn is Turn.GIVE_UP:
            raise StateError("rank 0 abandoned the checkpoint; see its log")
        time.sleep(POLL)


def _named(desk: Desk, partial: Path, step: int) -> Path | None:
    """The finished checkpoint that was written there."""
    for final in desk.directory.glob(f"step-{step:08d}*"):
        with contextlib.suppress(StateError):
            if read_manifest(final).written_as == partial.name:
                return final
    return None
