"""``stayfinite.attach()``: run the doctor inside a program or notebook."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import Any

from stayfinite.core.html import panel
from stayfinite.doctor.judges.course import doubt
from stayfinite.doctor.session import Seen, Session, plain
from stayfinite.report.diagnosis import headline, show_seen
from stayfinite.report.standard_output import StandardOutput

FILE = "doctor.json"


class Attachment:
    """The doctor in this process. In a notebook it displays the findings so far.

    Arguments:
        guard: refuse non-finite steps.
        run_dir: directory for the findings.
    """

    def __init__(self, *, guard: bool = False, run_dir: str | os.PathLike[str] | None = None) -> None:
        self._session = Session(guard=guard)
        self._run_dir = None if run_dir is None else Path(run_dir)
        self._over = False
        self._session.begin()
        atexit.register(self._at_exit)

    def findings(self, *, examine: bool = False) -> list[Any]:
        """Findings so far, top cause first. ``examine`` re-runs an early step for the probes."""
        return [each.finding for each in self._conclude(examine=examine).findings]

    def detach(self) -> None:
        """Remove all hooks; the record is kept."""
        if not self._over:
            self._over = True
            self._session.end()
            atexit.unregister(self._at_exit)

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def _conclude(self, *, examine: bool) -> Seen:
        watching = not self._over
        if watching:
            self._session.end()
        try:
            return self._session.conclude(examine=examine)
        finally:
            if watching:
                self._session.begin()

    def _at_exit(self) -> None:
        self.detach()
        seen = self._session.conclude(examine=True)
        said = self._said(seen)
        if self._run_dir is not None:
            self._run_dir.mkdir(parents=True, exist_ok=True)
            (self._run_dir / FILE).write_text(json.dumps(said, indent=1), encoding="utf-8")
        if seen.sick and seen.program.trains:
            console = StandardOutput()
            console.file = sys.stderr
            show_seen(said, console)

    def _said(self, seen: Seen) -> dict[str, Any]:
        said = plain(seen)
        doubtful = "" if seen.sick else doubt(seen.program)
        if doubtful:
            said["ended"] = doubtful
        healthy = seen.program.steps >= 2 and not doubtful
        said["verdict"] = "sick" if seen.sick else "healthy" if healthy else "unknown"
        return said

    def _repr_html_(self) -> str:
        said = self._said(self._conclude(examine=False))
        tone = {"sick": "error", "healthy": "good", "unknown": "warning"}[said["verdict"]]
        found = [
            panel(
                f"{each['severity']} {each['code']} {each['cause']} ({each['known_by']})",
                [*filter(None, (each["where"], each["title"], *each["evidence"])), f"Fix: {each['fix']}"],
                tone=each["severity"],
            )
            for each in said["findings"]
            if each["severity"] != "info"
        ]
        return panel(said["verdict"].capitalize(), [headline(said)], tone=tone) + "".join(found)


def attach(*, guard: bool = False, run_dir: str | os.PathLike[str] | None = None) -> Attachment:
    """Watch this program until it exits, then print the findings.

    The program's numbers stay bitwise the same, unless ``guard`` refuses a bad step.

    Arguments:
        guard: refuse steps with non-finite gradients.
        run_dir: also write the findings to ``run_dir/doctor.json``.

    Returns:
        The attachment: ``findings()`` returns the findings so far, ``detach()`` stops watching. In a notebook it
        displays them.

    Examples:
        >>> doctor = stayfinite.attach()  # then train as usual
        >>> doctor.detach()
    """
    return Attachment(guard=guard, run_dir=run_dir)
