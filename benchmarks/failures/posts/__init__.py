"""What people post for each cause of a failed training, and for healthy runs, written for this benchmark.

A text file each cause, with posts separated by a line `===`; `healthy-*.txt` must be left in peace. The experience of
`diagnose` is learned from them (`learning.py`), so a score on them is no first look.

    python -m benchmarks.failures.posts              # how many posts are called sick, right first, among three
    python -m benchmarks.failures.posts lr-zero      # the same of some causes, with the posts that are missed
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
HEALTHY = "healthy-"
BETWEEN = "\n===\n"


def posts(only: str = "") -> Iterator[tuple[str, str]]:
    """The name of a file, and each post in it."""
    for path in sorted(FOLDER.glob(f"{only or '*'}.txt")):
        for text in path.read_text(encoding="utf-8").strip("\n").split(BETWEEN):
            yield path.stem, text.strip("\n") + "\n"
