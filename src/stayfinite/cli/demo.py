"""``stayfinite demo``: train three times side by side and see the difference."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from stayfinite.cli.ending import tell_error
from stayfinite.core.schema_names import tagged
from stayfinite.flags import parsed
from stayfinite.report.standard_output import StandardOutput


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train a small T5-shaped model three times side by side: fp32, plain fp16, guarded fp16."""

    steps: int = 250
    """Batches per training."""

    seed: int = 0
    """Seed of weights, data and batches."""

    out: Path = Path("runs/demo")
    """Output directory; if it exists, a numbered one next to it."""

    json: bool = False
    """Print the result as JSON and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; 0 if the demo finished."""
    settings = parsed(Demo, arguments, "stayfinite demo")
    if settings.steps < 1:
        return tell_error("demo", f"--steps {settings.steps}: expected at least 1", as_json=settings.json)
    with warnings.catch_warnings():
        # The bare install has no numpy, and torch warns about it on first use.
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
        from stayfinite.demo.run import run_demo

        result = run_demo(
            out=settings.out,
            steps=settings.steps,
            seed=settings.seed,
            console=Console(quiet=True) if settings.json else StandardOutput(),
        )
    if settings.json:
        print(json.dumps(tagged("demo", result.to_json()), indent=1, default=str))
    return 0
