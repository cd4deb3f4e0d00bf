"""``stayfinite mcp``: a Model Context Protocol server for assistants."""

import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from stayfinite.cli.ending import command, given
from stayfinite.errors import UsageError

TOKEN = "STAYFINITE_MCP_TOKEN"
"""Environment variable with the token for --http."""


@dataclass(frozen=True, kw_only=True)
class Mcp:
    """Serve coding assistants over the Model Context Protocol: diagnose, check, diff, scan, explain, run_status; with
    --allow-run also doctor and replay. Uses standard input and output, or 127.0.0.1 with --http.
    """

    root: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Directory that may be read; repeat for several. By default the current directory."""

    allow_run: bool = False
    """Allow `doctor` and `replay`, which run programs in the roots."""

    seconds: float = 60.0
    """Time limit per call, in seconds."""

    run_minutes: float = 10.0
    """Time limit per call of `doctor` or `replay`, in minutes."""

    megabytes: int = 512
    """Largest file to read, in MB."""

    http: bool = False
    """Serve HTTP on 127.0.0.1 instead. The token comes from STAYFINITE_MCP_TOKEN, or is generated and printed."""

    port: int = 8766
    """Port for --http."""


@command(Mcp)
def run(settings: Mcp) -> int:
    """Run the command until its client disconnects or Ctrl-C; 2 on wrong use."""
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

    limits = Limits(roots=roots, **given(settings, "allow_run", "seconds", "run_minutes", "megabytes"))
    server = make_server(limits, __version__)
    if not settings.http:
        anyio.run(serve_stdio, server)
        return 0
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    shown = f"${TOKEN}" if os.environ.get(TOKEN) else token
    print(f"http://{HOST}:{settings.port}/mcp  Authorization: Bearer {shown}", file=sys.stderr, flush=True)
    anyio.run(serve_http, server, settings.port, token)
    return 0
