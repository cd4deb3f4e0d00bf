"""``stayfinite replay``: re-run a captured incident, later and elsewhere, and find its cause."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from stayfinite.cli.ending import command, given, tell, without_numpy_warning


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Re-run an incident with one thing changed at a time, and prove what made the step bad."""

    incident: Annotated[Path, tyro.conf.Positional]
    """The incident, such as runs/first/incidents/0001."""

    build: str | None = None
    """module:function that returns model and forward, found from the current directory."""

    world: str | None = None
    """Run this world only: fp32, bf16, good_weights ..."""

    device: str | None = None
    """Device: cpu, cuda, cuda:1; by default as in the run, or the CPU."""

    seconds: float = 600.0
    """Start no new world after this many seconds."""

    write: bool = True
    """Save the result in the incident: autopsy.json, or replay.json if the run has an autopsy. Not for a single world.
    """

    json: bool = False
    """Print the result as JSON and nothing else."""


@command(Replay)
def run(settings: Replay) -> int:
    """Run the command; 0 if the step is finite, 1 with a cause, 2 on wrong use."""
    with without_numpy_warning():
        from stayfinite.autopsy.incidents.rebuild import replay

        found, notes = replay(settings.incident, **given(settings, "build", "world", "device", "seconds"))
    if settings.write and settings.world is None:
        notes += _write(settings.incident, found)
    from stayfinite.report.autopsy import draw_autopsy

    tell("replay", found | {"notes": notes}, draw_autopsy, as_json=settings.json, default=str)
    return 1 if found["cause"] else 0


def _write(incident: Path, found: dict[str, Any]) -> list[str]:
    from stayfinite.autopsy.incidents.incident_files import AUTOPSY, REPLAY, write_autopsy
    from stayfinite.autopsy.incidents.rebuild import earlier_cause

    # The run itself had everything that made the step bad; what build() creates may differ.
    cause = earlier_cause(incident)
    name = AUTOPSY if cause is None else REPLAY
    kept = "" if cause is None else f"; the run's own autopsy ({cause or 'no cause'}) is kept"
    try:
        return [f"saved to {write_autopsy(incident, found, name)}{kept}"]
    except OSError as error:
        return [f"cannot write {name}: {error.strerror or error}"]
