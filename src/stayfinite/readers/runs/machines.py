"""The machines that runs used, across restarts and ranks, from their directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stayfinite.core.suspects import Machine
from stayfinite.readers.runs.directory import EVENTS, OTHER_RANKS, RUN, moment, record_in

NOT_FINITE = ("loss-not-finite", "gradient-not-finite")


@dataclass(slots=True)
class _Launch:
    """One launch of a run: the machine of each rank, and its number of checks."""

    time: float
    ranks: list[tuple[str, str]]
    replayed: dict[tuple[int, tuple[str, str]], int] = field(default_factory=dict)


def runs_in(paths: Sequence[Path]) -> list[Path]:
    """The run directories among these paths and below them, without duplicates."""
    found: dict[Path, None] = {}
    for path in paths:
        files = [path / EVENTS] if (path / EVENTS).is_file() else sorted(path.rglob(EVENTS))
        found |= dict.fromkeys(file.parent for file in files)
    return list(found)


def machines_of(runs: Sequence[Path]) -> list[Machine]:
    """Every machine named in these runs, with its checks. Raises OSError if a file cannot be read."""
    machines: dict[tuple[str, str], Machine] = {}
    for run in runs:
        _read(run, machines)
    return list(machines.values())


def _read(run: Path, machines: dict[tuple[str, str], Machine]) -> None:
    launches = _launches(run)
    for launch in launches:
        for place in dict.fromkeys(launch.ranks):
            machine = _at(machines, place)
            machine.launches += 1
            machine.ranks.update(rank for rank, where in enumerate(launch.ranks) if where == place)
    for path in (run / EVENTS, *sorted(run.glob(OTHER_RANKS))):
        for record in _records(path):
            _take(record, _in_force(launches, record), run, machines)
    for launch in launches:
        for (rank, place), count in launch.replayed.items():
            machine = _at(machines, place)
            machine.replayed += count
            machine.ranks.add(rank)


def _take(record: dict[str, Any], launch: _Launch, run: Path, machines: dict[tuple[str, str], Machine]) -> None:
    event, place = record.get("event"), (str(record.get("host", "")), str(record.get("device", "")))
    if event in ("replays", "replay-mismatch", "replay-suspect") and all(place):
        machine, rank, count = _at(machines, place), record.get("rank"), record.get("replayed")
        if isinstance(rank, int) and isinstance(count, int):
            # The count grows within a launch; a crashed run reported it only up to its last mismatch.
            launch.replayed[rank, place] = max(count, launch.replayed.get((rank, place), 0))
        if event == "replay-mismatch":
            machine.persistent += record.get("kind") == "persistent"
            machine.transient += record.get("kind") != "persistent"
            machine.places.append(f"{run} step {record.get('step')}")
        machine.unsteady += event == "replay-suspect"
    elif record.get("code") in NOT_FINITE and isinstance(ranks := record.get("bad_ranks"), list):
        bad = ranks or ([0] if len(launch.ranks) == 1 else [])
        for place in {launch.ranks[rank] for rank in bad if isinstance(rank, int) and rank < len(launch.ranks)}:
            _at(machines, place).bad_steps += 1


def _at(machines: dict[tuple[str, str], Machine], place: tuple[str, str]) -> Machine:
    return machines.setdefault(place, Machine(*place))


def _in_force(launches: list[_Launch], record: dict[str, Any]) -> _Launch:
    time = moment(str(record.get("time"))) or 0.0
    return next((launch for launch in reversed(launches) if launch.time <= time), launches[0])


def _launches(run: Path) -> list[_Launch]:
    try:
        recorded = record_in((run / RUN).read_bytes()).get("launches")
    except OSError:
        recorded = None
    found = []
    for launch in recorded if isinstance(recorded, list) else []:
        ranks = launch.get("ranks") if isinstance(launch, dict) else None
        if isinstance(ranks, list):
            places = [(str(each.get("host")), str(each.get("device"))) for each in ranks if isinstance(each, dict)]
            found.append(_Launch(moment(str(launch.get("time"))) or 0.0, places))
    return found or [_Launch(0.0, [])]


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file():
        with path.open("rb") as file:
            yield from filter(None, map(record_in, file))
