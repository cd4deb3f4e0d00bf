"""Scores `diagnose` on the posts: ``python -m benchmarks.failures.posts [CAUSE ...]``."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from multiprocessing import Pool
from pathlib import Path

from benchmarks.failures.logs.reading import SAME_CAUSE
from benchmarks.failures.posts import HEALTHY, posts
from stayfinite import diagnose


def asked(post: tuple[str, str]) -> tuple[str, list[str]]:
    """The verdict on a post and its causes, remarks last."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "log.txt"
        path.write_text(post[1], encoding="utf-8")
        said = diagnose(path)
    return said.verdict, [each.cause for each in sorted(said.findings, key=lambda each: each.severity == "info")]


def main() -> None:
    """Print a line for each file: posts, called sick, right first, right among three."""
    given = [post for name in sys.argv[1:] or [""] for post in posts(name)]
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * 4)
    with Pool() as pool:
        for (name, text), (verdict, causes) in zip(given, pool.map(asked, given, chunksize=16), strict=True):
            right = SAME_CAUSE.get(name, {name})
            sick = verdict in ("sick", "warning")
            more = (True, sick, bool(right & {*causes[:1]}), bool(right & {*causes[:3]}))
            counts[name] = [count + one for count, one in zip(counts[name], more, strict=True)]
            if sys.argv[1:] and (sick if name.startswith(HEALTHY) else not (sick and more[2])):
                print(f"--- {name}: {verdict}, {', '.join(causes[:3])}\n{text}")
    for name, row in counts.items():
        print(f"{name:40} {row[0]:4} posts, {row[1]:4} called sick, {row[2]:4} right first, {row[3]:4} among three")
    for title, healthy in (("sick", False), ("healthy", True)):
        rows = [row for name, row in counts.items() if name.startswith(HEALTHY) is healthy]
        print(f"all {title}: {[sum(column) for column in zip(*rows, strict=True)]}")


if __name__ == "__main__":
    main()
