"""``stayfinite tail PATH``: follow a log live and report when it turns bad."""

import json
import math
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from stayfinite.cli.ending import command
from stayfinite.core.finding import Finding
from stayfinite.core.schema_names import tagged
from stayfinite.core.series import Point
from stayfinite.errors import UsageError
from stayfinite.report.printable import printable


@dataclass(frozen=True, kw_only=True)
class Tail:
    """Follow a growing log and report when it turns bad: the rules of `diagnose`, live. Ctrl-C stops."""

    path: Annotated[Path, tyro.conf.Positional]
    """The log. It may not exist yet, and may be rotated."""

    config: tuple[Path, ...] = ()
    """Configs or scripts of the run, to tell causes apart."""

    poll: float = 0.5
    """Seconds between reads."""

    once: bool = False
    """Read what is there, then exit."""

    stop: bool = False
    """Exit at the first finding, with exit code 1."""

    json: bool = False
    """Print each finding as one line of JSON and nothing else."""


@command(Tail, also=(OSError,))
def run(settings: Tail) -> int:
    """Run the command; 1 if something turned bad, 0 if not, 2 on wrong use."""
    if not (math.isfinite(settings.poll) and settings.poll > 0):
        raise UsageError(f"--poll {settings.poll}: expected seconds above 0")
    if settings.path.is_dir() or (settings.once and not settings.path.exists()):
        kind = "is a directory: name a log in it" if settings.path.is_dir() else "no such file"
        raise UsageError(f"{settings.path}: {kind}")
    from stayfinite.core.settings import Settings
    from stayfinite.diagnosis.following import Follower, new_bytes
    from stayfinite.readers.configs import read_config

    turned = False
    follower = Follower(str(settings.path), sum((read_config(path) for path in settings.config), Settings()))
    screen = _Screen(settings.path, as_json=settings.json)
    with suppress(KeyboardInterrupt):
        for piece in new_bytes(settings.path, poll=settings.poll):
            if piece is None:
                follower.start_anew()
                continue
            follower.feed(piece)
            for finding in follower.turned(at_once=settings.once and not piece):
                turned = True
                screen.tell(finding, follower.began, follower.trouble)
            screen.status(follower.last)
            if (settings.once and not piece) or (settings.stop and turned):
                break
    return int(turned)


WORTH_NAMING = 0.2
"""Below this confidence, the symptom is told and not a cause."""


class _Screen:
    """A status line that is rewritten on a terminal, with findings above it."""

    def __init__(self, path: Path, *, as_json: bool) -> None:
        self._path = str(path)
        self._json = as_json
        self._live = sys.stdout.isatty() and not as_json
        self._width = 0

    def tell(self, finding: Finding, began: int | None, trouble: Sequence[str]) -> None:
        if self._json:
            print(json.dumps(tagged("finding", finding.to_json()), ensure_ascii=False), flush=True)
            return
        self._clear()
        since = "" if began is None else f"from step {began:,}: "
        if trouble and finding.confidence < WORTH_NAMING:
            what = "; ".join(trouble)
            print(f"{time.strftime('%H:%M:%S')} {'' if ' from step ' in what else since}{what}")
            print(f"  cause not certain; perhaps {finding.code} {finding.cause}")
            print(f"  next: stayfinite diagnose {printable(self._path)}", flush=True)
            return
        named = f"{finding.code} {finding.cause} ({finding.confidence:.0%}): {finding.title}"
        print(f"{time.strftime('%H:%M:%S')} {since}{named}")
        for line in finding.evidence:
            print(f"  {printable(line)}")
        print(f"  fix: {finding.fix}", flush=True)

    def status(self, point: Point | None) -> None:
        if not self._live or point is None:
            return
        names = ("step", "epoch", "loss", "grad_norm", "lr", "loss_scale")
        words = [f"{name} {value:g}" for name in names if (value := getattr(point, name)) is not None]
        line = "  ".join(words)
        self._clear()
        print(line, end="", flush=True)
        self._width = len(line)

    def _clear(self) -> None:
        if self._width:
            print("\r" + " " * self._width + "\r", end="")
            self._width = 0
