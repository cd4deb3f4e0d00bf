"""``stayfinite scan``: check checkpoints for NaN and damage."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from stayfinite.cli.ending import command, tell, without_numpy_warning
from stayfinite.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Check checkpoints: NaN, inf and extreme values, truncated or modified files, missing shards.

    Reads safetensors, .pt, .pth, .bin and .ckpt, adapters, optimizer states, torch.distributed.checkpoint, DeepSpeed
    and stayfinite checkpoints. Never executes a pickle. Exit code 0: clean, 1: findings, 2: wrong use.
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Checkpoints, or directories of them."""

    json: bool = False
    """Print the result as JSON and nothing else."""

    quick: bool = False
    """Check headers, sizes and indices only, not values and hashes."""

    hashes: bool = True
    """Compare SHA-256 sums with a manifest or list, if there is one."""


@command(Scan, tells_interrupt=True)
def run(settings: Scan) -> int:
    """Run the command; 0 if all is good, 1 with findings, 2 if there is nothing to scan."""
    if not settings.paths:
        raise UsageError("no checkpoint named")
    with without_numpy_warning():
        from stayfinite.readers.checkpoints.scan import scan
        from stayfinite.report.progress import reading_progress
        from stayfinite.report.scan import show

        try:
            with reading_progress(quiet=settings.json) as told:
                progress = partial(told, "scanning") if told else None
                result = scan(settings.paths, quick=settings.quick, hashes=settings.hashes, progress=progress)
        except FileNotFoundError as error:
            raise UsageError(f"no such file: {error.filename or error}", fix="check the path") from error
        except OSError as error:
            raise UsageError(f"{error.filename or ''}: {error.strerror or error}") from error
    tell("scan", result.to_json(), show, as_json=settings.json, allow_nan=False)
    if result.verdict == "unknown" and not settings.quick:
        return 2
    return int(result.verdict == "sick")
