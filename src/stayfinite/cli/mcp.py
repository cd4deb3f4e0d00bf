"""``stayfinite mcp``: a Model Context Protocol server for assistants."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from stayfinite.cli.ending import exit_code
from stayfinite.errors import UsageError
from stayfinite.flags import parsed

TOKEN = "STAYFINITE_MCP_TOKEN"
"""The environment variable that holds the token for --http."""


@dataclass(frozen=True, kw_only=True)
class Mcp:
    """Serve assistants over the Model Context Protocol: diagnose, check, diff, scan, explain, run_status, and with
    --allow-run doctor and replay. Speaks over standard input and output; with --http on 127.0.0.1.
    """

    root: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A directory that may be read; give it once for each. The current directory by default."""

    allow_run: bool = False
    """Allow `doctor` and `replay`, which run programs in the roots."""

    seconds: float = 60.0
    """The time limit of a call."""

    run_minutes: float = 10.0
    """The time limit of a call of `doctor` or `replay`."""

    megabytes: int = 512
    """The largest file that is read."""

    http: bool = False
    """Serve HTTP on 127.0.0.1 in place of standard input and output. The token is taken from STAYFINITE_MCP_TOKEN, or
    made anew and printed."""

    port: int = 8766
    """For --http."""


def run(arguments: Sequence[str]) -> int:
    """Run the command until its client leaves or Ctrl-C; 2 on wrong use."""
    settings = parsed(Mcp, arguments, "stayfinite mcp")
    return exit_code("mcp", lambda: _run(settings))


def _run(settings: Mcp) -> int:
    if not (settings.seconds > 0 and settings.run_minutes > 0 and settings.megabytes > 0):
        raise UsageError("--seconds, --run-minutes and --megabytes must be above 0")
    roots = tuple(path.resolve() for path in settings.root or (Path.cwd(),))
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"--root {root}: no such directory")
    import anyio

    from stayfinite import __version__
    from stayfinite.mcp.limits import Limits
    from stayfinite.mcp.serving import HOST, make_server, serve_http, serve_stdio

    limits = Limits(
        roots=roots,
        allow_run=settings.allow_run,
        seconds=settings.seconds,
        run_minutes=settings.run_minutes,
        megabytes=settings.megabytes,
    )
    server = make_server(limits, __version__)
    if not settings.http:
        anyio.run(serve_stdio, server)
        return 0
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    shown = f"${TOKEN}" if os.environ.get(TOKEN) else token
    print(f"http://{HOST}:{settings.port}/mcp  Authorization: Bearer {shown}", file=sys.stderr, flush=True)
    anyio.run(serve_http, server, settings.port, token)
    return 0
