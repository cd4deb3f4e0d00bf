"""``stayfinite demo``: train three times side by side and see the difference."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from stayfinite.cli.ending import command, print_json, without_numpy_warning
from stayfinite.errors import UsageError
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


@command(Demo)
def run(settings: Demo) -> int:
    """Run the command; 0 if the demo finished."""
    if settings.steps < 1:
        raise UsageError(f"--steps {settings.steps}: expected at least 1")
    with without_numpy_warning():
        from stayfinite.demo.run import run_demo

        console = Console(quiet=True) if settings.json else StandardOutput()
        result = run_demo(out=settings.out, steps=settings.steps, seed=settings.seed, console=console)
    if settings.json:
        print_json("demo", result.to_json(), default=str)
    return 0
