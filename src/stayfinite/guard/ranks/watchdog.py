"""Watchdog for several ranks: names the missing rank before the collective times out.

A thread on each rank checks the training's progress about once per second. While there is progress, nothing is sent or
written. A rank without progress for too long writes its stack to the shared run directory; the lowest such rank reads
the others' answers, decides with ``core/stalls.py``, and reports.
"""

import contextlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from stayfinite.core.stalls import Beat, Kind, Phase, Stall, find_stall, limit_of
from stayfinite.guard.ranks.stacks import Motion, all_stacks, where_is

RECENT = 32
"""Steps whose durations define the usual one."""

PATIENCE = 1.1
"""Multiple of the limit to wait before reading the answers: ranks reach their limits at different times."""

TICKS = 10
"""Checks within the shortest limit."""

ANSWERS = ".stacks"
SHOWN = 8
"""Most ranks named in a line."""

Tell = Callable[[], Callable[..., None] | None]


@dataclass(frozen=True, slots=True)
class Member:
    """Host and process of a rank."""

    host: str
    pid: int


class Watchdog:
    """Watches one rank's progress.

    Arguments:
        directory: run directory on shared storage.
        launch: token that all ranks share, new at each launch.
        floor: minimum seconds without progress before it looks.
        timeout: timeout of the collective in seconds.
        tell: weak reference to ``tell(event, step, line, **details)``, so the thread does not keep a dropped guard and
            its model alive. Called from the watchdog's thread, which ends with it.
    """

    def __init__(
        self,
        rank: int,
        members: Sequence[Member],
        directory: Path,
        *,
        launch: str,
        floor: float,
        timeout: float,
        tell: Tell,
    ) -> None:
        self._rank, self._members, self._directory, self._launch = rank, members, directory, launch
        self._floor, self._timeout, self._tell = floor, timeout, tell
        self._tick = min(1.0, floor / TICKS, timeout / TICKS)
        # Written by the training thread, one assignment each; read by the watchdog's.
        self._mark: tuple[int, Phase, float] | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._longest = 0.0
        self._met = 0.0
        self._ident = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._reported: set[tuple[int, Kind]] = set()
        self._alarm: Stall | None = None

    def at(self, phase: Phase, step: int) -> None:
        """Record that the training reached this phase of this step."""
        now = time.monotonic()
        before, self._mark = self._mark, (step, phase, now)
        if before is None:
            self._begin()
        elif len(self._recent) > 1 and now - before[2] > self._longest:
            self._longest = now - before[2]
        if self._alarm is not None and before is not None:
            self._all_clear(step, now - before[2])
        if phase is Phase.AFTER:
            if self._met:
                self._recent.append(now - self._met)
            self._met = now

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _all_clear(self, step: int, seconds: float) -> None:
        self._alarm = None
        line = f"step {step} continues: all ranks arrived, {seconds:.0f} s late"
        self._say("stall-over", step, line, reason=line, seconds=round(seconds, 1))

    def _begin(self) -> None:
        self._ident = threading.get_ident()
        self._thread = threading.Thread(target=self._work, name="stayfinite watchdog", daemon=True)
        self._thread.start()

    # -- in its own thread -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._watch()
        except Exception as error:
            # Training continues without the watchdog.
            reason = f"{type(error).__name__}: {error}"
            self._say("watchdog-failed", 0, f"watchdog disabled: {reason}", reason=reason)

    def _watch(self) -> None:
        motion = Motion(self._ident)
        answered, looked = False, 0.0
        while not self._over.wait(self._tick) and self._tell() is not None:
            still = motion.look()
            assert self._mark is not None
            step, phase, since = self._mark
            now = time.monotonic()
            quiet = now - since
            limit = limit_of(list(self._recent), self._longest, floor=self._floor, timeout=self._timeout)
            if quiet < limit:
                if answered:
                    self._take_back()
                answered = False
                continue
            # Answers are refreshed, so a reader sees whether this rank moves.
            if not answered or now - looked > max(limit / TICKS, self._tick):
                looked, answered = now, True
                where, waits = where_is(self._ident)
                beat = Beat(rank=self._rank, step=step, phase=phase, quiet=quiet, still=still, waits=waits, where=where)
                with contextlib.suppress(OSError):
                    self._answer(beat)
                    if quiet > PATIENCE * limit + 2 * self._tick:
                        self._judge(limit)
        if answered:
            self._take_back()

    def _take_back(self) -> None:
        with contextlib.suppress(OSError):
            self._own_answer.unlink(missing_ok=True)

    @property
    def _own_answer(self) -> Path:
        return self._directory / ANSWERS / f"rank{self._rank:05d}.json"

    def _answer(self, beat: Beat) -> None:
        record = {"launch": self._launch, "beat": asdict(beat), "stacks": all_stacks(self._ident)}
        aside = self._own_answer.with_suffix(".aside")
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(record), encoding="utf-8")
        aside.replace(self._own_answer)

    def _answers(self) -> dict[int, tuple[Beat, str]]:
        found = {}
        for path in sorted((self._directory / ANSWERS).glob("rank*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(path.read_text(encoding="utf-8"))
                if record["launch"] == self._launch:
                    beat = Beat(**record["beat"] | {"phase": Phase(record["beat"]["phase"])})
                    found[beat.rank] = (beat, record["stacks"])
        return found

    def _judge(self, limit: float) -> None:
        answers = self._answers()
        if min(answers, default=-1) != self._rank:
            return  # the lowest answering rank reports
        beats = [beat for beat, _ in answers.values()]
        stall = find_stall(beats, len(self._members), limit=limit, timeout=self._timeout)
        if stall is None or (stall.step, stall.kind) in self._reported:
            return
        self._reported.add((stall.step, stall.kind))
        self._alarm = stall
        path = self._directory / f"stacks-step-{stall.step:08d}.txt"
        aside = path.with_name(f".{path.name}")
        aside.write_text(in_groups(answers, stall, self._members), encoding="utf-8")
        aside.replace(path)
        reason = self._reason(stall, {rank: beat for rank, (beat, _) in answers.items()})
        left = max(0.0, self._timeout - stall.waited)
        line = f"STALL: {reason}. The collective times out in {left:.0f} s. Stacks of all ranks: {path}"
        self._say(
            "stall", stall.step, line, reason=reason, kind=stall.kind, missing_ranks=list(stall.ranks),
            hosts=sorted({self._members[rank].host for rank in stall.ranks}), waited=round(stall.waited, 1),
            stacks=path.name,
        )  # fmt: skip

    def _reason(self, stall: Stall, beats: Mapping[int, Beat]) -> str:
        first = stall.ranks[0] if stall.ranks else -1
        named = _named(stall.ranks, self._members)
        where = beats[first].where if first in beats else ""
        waited = f"{stall.waited:.0f} s"
        if stall.kind is Kind.TOGETHER:
            odd = f"; {named} elsewhere, at {where}" if stall.ranks else f", at {next(iter(beats.values())).where}"
            return f"all {len(self._members)} ranks have been stuck at step {stall.step} for {waited}{odd}"
        said = f"{named} did not reach step {stall.step}; the others waited {waited}"
        if stall.kind is Kind.SILENT:
            return f"{said}. No answer: {_state_of(self._members[first])}"
        moves = " and still running" if stall.kind is Kind.LATE else ""
        return f"{said}. It is at {where}{moves}"

    def _say(self, *words: Any, **details: Any) -> None:
        if (tell := self._tell()) is not None:
            tell(*words, **details)


def timeout_of(device: torch.device) -> float:
    """Timeout of collectives on this device, in seconds."""
    try:
        backend: Any = dist.group.WORLD
        span = backend._get_backend(device).options._timeout
    except (AttributeError, RuntimeError):
        span = dist.distributed_c10d.default_pg_timeout
    return float(span.total_seconds()) if isinstance(span, timedelta) else 600.0


def in_groups(answers: Mapping[int, tuple[Beat, str]], stall: Stall, members: Sequence[Member]) -> str:
    """Stacks of all ranks, identical ones merged; the named ranks come first."""
    groups: dict[tuple[Phase, str], list[int]] = {}
    for rank, (beat, stacks) in answers.items():
        groups.setdefault((beat.phase, stacks), []).append(rank)
    parts = [f"step {stall.step}: {stall.kind}, {_named(stall.ranks, members)}, waited {stall.waited:.0f} s"]
    silent = [rank for rank in range(len(members)) if rank not in answers]
    if silent:
        parts.append(f"no answer: {_named(silent, members)}")
    order = sorted(groups.items(), key=lambda each: (each[1][0] not in stall.ranks, len(each[1]), each[1]))
    for (phase, stacks), ranks in order:
        beat = answers[ranks[0]][0]
        parts.append(
            f"== {_named(ranks, members)}: {phase.name.lower()}, no progress for {beat.quiet:.0f} s, "
            f"stack unchanged for {beat.still:.0f} s\n{stacks}"
        )
    return "\n\n".join(parts) + "\n"


def _named(ranks: Sequence[int], members: Sequence[Member]) -> str:
    if not ranks:
        return "no rank is behind"
    shown = ", ".join(f"{rank} ({members[rank].host})" for rank in ranks[:SHOWN])
    more = f" and {len(ranks) - SHOWN:,} more" if len(ranks) > SHOWN else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _state_of(member: Member) -> str:
    """State of a silent process from /proc, if it is on this machine."""
    if member.host == socket.gethostname() and Path("/proc/self/stat").exists():
        try:
            state = Path(f"/proc/{member.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return f"process {member.pid} is gone"
        if state in "Tt":
            return f"process {member.pid} is stopped (SIGSTOP, or a debugger)"
        if state in "ZX":
            return f"process {member.pid} has ended"
        return f"process {member.pid} is alive but blocked in native code (it holds the GIL)"
    return "its machine or process is gone, or it does not share the run directory"
