"""Random faults against short trainings: what survived, what stopped and why, and what it cost.

    python benchmarks/chaos.py                          # 200 faults from seed 0, about five minutes on two cores
    python benchmarks/chaos.py --faults 60 --seed 7 --ranks-share 0.1

Each fault hits its own training: a small model with BatchNorm and dropout or a small transformer, shuffled data, a
guard with snapshots and a checkpoint every 5 steps, 96 steps in all. It is compared with the same training without a
fault. A run with bad numbers must end close to it; one that is killed and resumed, or loses its disk, must end with
identical bits; one that cannot continue must stop with the right error and exit code. Every process has a time limit,
and all checkpoints of all runs are searched for NaN and infinity. The faults are in ``tests/fault_injector.py``, the
expected outcome of each in ``tests/faults/kinds.py``.

``kept`` is the share of the fault-free run's progress in validation loss that finished runs have made, median and
worst. ``steps lost`` were refused, rolled back, failed to load, or lie between the last checkpoint and a kill.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
HEAD = ("fault", "count", "right", "ending", "steps lost", "(most)", "deadlocks", "poisoned", "kept", "(worst)")


def read_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument(
        "--ranks-share", type=float, default=0.05, help="share that hits one of two ranks (default: 0.05)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="faults under way at a time (default: 2)")
    parser.add_argument("--folder", type=Path, help="keep what failed runs left here (default: a temporary folder)")
    return parser.parse_args(words)


def run_campaign(arguments: argparse.Namespace, folder: Path) -> list[Any]:
    """Run all faults, with a progress line."""
    sys.path.insert(0, str(TESTS))
    from faults.campaign import campaign  # type: ignore[import-not-found]

    outcomes: list[Any] = []
    begun = time.monotonic()
    for outcome in campaign(
        arguments.faults, arguments.seed, folder, ranks_share=arguments.ranks_share, jobs=arguments.jobs
    ):
        outcomes.append(outcome)
        if not outcome.right:
            print(f"\nWRONG {outcome.story}\n      {complaints_of(outcome)}", flush=True)
        right = sum(each.right for each in outcomes)
        line = f"{len(outcomes):4d} of {arguments.faults} faults, {right} right, {time.monotonic() - begun:.0f} s"
        if sys.stdout.isatty():
            print(f"\r{line}", end="", flush=True)
        elif len(outcomes) % 20 == 0 or len(outcomes) == arguments.faults:
            print(line, flush=True)
    print()
    return outcomes


def complaints_of(outcome: Any) -> str:
    """Why an outcome is wrong."""
    words = list(outcome.complaints)
    words += [f"{outcome.deadlocks} deadlocks"] * bool(outcome.deadlocks)
    words += [f"{outcome.poisoned} poisoned checkpoints"] * bool(outcome.poisoned)
    return "; ".join(words)


def rows_of(outcomes: Sequence[Any]) -> list[tuple[str, ...]]:
    """One row per kind of fault, and one for all."""
    kinds = sorted({outcome.kind for outcome in outcomes})
    rows = [_row(kind, [each for each in outcomes if each.kind == kind]) for kind in kinds]
    return [*rows, _row("all", outcomes)]


def _row(name: str, outcomes: Sequence[Any]) -> tuple[str, ...]:
    lost = [outcome.steps_lost for outcome in outcomes]
    kept = [outcome.progress_kept for outcome in outcomes if outcome.progress_kept is not None]
    endings = sorted({outcome.ending for outcome in outcomes})
    return (
        name,
        f"{len(outcomes)}",
        f"{sum(outcome.right for outcome in outcomes)}",
        "/".join(endings),
        f"{statistics.mean(lost):.1f}",
        f"{max(lost)}",
        f"{sum(outcome.deadlocks for outcome in outcomes)}",
        f"{sum(outcome.poisoned for outcome in outcomes)}",
        f"{statistics.median(kept):.1%}" if kept else "-",
        f"{min(kept):.1%}" if kept else "-",
    )


def print_table(rows: Iterable[tuple[str, ...]]) -> None:
    """Print aligned columns, the first and the fourth left-aligned."""
    lines = [HEAD, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    for number, line in enumerate(lines):
        cells = [
            cell.ljust(width) if column in (0, 3) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells))
        if number in (0, len(lines) - 2):
            print("-" * (sum(widths) + 2 * len(widths) - 2))


def main() -> int:
    """Run the campaign, print the table; 1 if any outcome was wrong."""
    arguments = read_arguments()
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        outcomes = run_campaign(arguments, arguments.folder or Path(temporary))
    print_table(rows_of(outcomes))
    right = sum(outcome.right for outcome in outcomes)
    print(f"\n{right} of {len(outcomes)} faults ended in the right outcome")
    return int(right < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
