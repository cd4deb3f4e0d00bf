"""Reads the labeled logs: a text file each, the label above, then the settings and the log as they were reported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.failures.cases import QUOTED, Case

FOLDER = Path(__file__).parent
HARMLESS = {
    "healthy", "amp-initial-scale-search", "benign-warning", "benign-inf", "high-initial-loss", "lr-zero-first-step",
}  # fmt: skip
SAME_CAUSE = {
    "fp16-overflow-model-family": {"fp16-overflow-model-family", "fp16-overflow"},
    "fp16-overflow": {"fp16-overflow", "fp16-overflow-model-family"},
    "pure-fp16-weights": {"pure-fp16-weights", "double-fp16"},
    "environment": {"environment", "upstream-bug"},
    "upstream-bug": {"upstream-bug", "environment"},
}
"""Slugs that name the same cause as a label."""


@dataclass(frozen=True, kw_only=True)
class LogCase(Case):
    """A log, the settings beside it, and what was wrong."""

    cause: str
    """The label as it stands in the file."""
    config: str
    log: str
    sure: str = ""

    @property
    def accepted(self) -> set[str]:
        """The label, and slugs that name the same cause."""
        return SAME_CAUSE.get(self.cause, {self.cause})

    @property
    def harmless(self) -> bool:
        """Whether nothing was wrong with the run."""
        return self.cause in HARMLESS

    @property
    def thread(self) -> str:
        """Its source without what may be spelled in two ways."""
        return thread_of(self.source)

    def write(self, folder: Path) -> list[Path]:
        """The files of it, as a user would have them."""
        paths = []
        for name, text in (("log.txt", self.log), ("config.txt", self.config)):
            if text:
                paths.append(folder / name)
                paths[-1].write_bytes(text.encode())
        return paths


def thread_of(source: str) -> str:
    """``https://github.com/Owner/name/issues/7#issuecomment-1`` and ``owner/name#7 (part)`` are one thread."""
    plain = source.lower().split(" (")[0].strip().rstrip("/")
    plain = re.sub(r"^(https?://)?(www\.)?(github\.com/)?", "", plain)
    if found := re.match(r"([\w.-]+/[\w.-]+)(?:#|/(?:issues|pull|discussions)/)(\d+)", plain):
        return f"{found[1]}#{found[2]}"
    return plain


def read_set(split: str, name: str) -> list[LogCase]:
    """The cases of one set."""
    return [_read(path, split) for path in sorted((FOLDER / split / name).glob("*.case"))]


def read(split: str) -> Iterator[LogCase]:
    """All cases of a split."""
    for folder in sorted(path for path in (FOLDER / split).iterdir() if path.is_dir()):
        yield from read_set(split, folder.name)


def _read(path: Path, split: str) -> LogCase:
    head, _, rest = path.read_bytes().decode().partition("--- config\n")
    config, _, log = rest.partition("--- log\n")
    label = dict(line.split(": ", 1) for line in head.strip().split("\n"))
    cause = label["cause"]
    return LogCase(
        part="logs",
        split=split,
        name=path.stem,
        causes=() if cause in HARMLESS else tuple(sorted(SAME_CAUSE.get(cause, {cause}))),
        source=label["source"],
        author=label.get("author", ""),
        licence=label.get("licence", QUOTED),
        cause=cause,
        config=config,
        log=log,
        sure=label.get("sure", ""),
    )
