"""The training step of a checkpoint and the order of several."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.checkpoints.facts import FileFacts

_WORDS = r"global_?step|checkpoint|ckpt|steps?|iter|iteration|update|ba"
_IN_NAME = lazy_regex(rf"(?:^|[-_.=])(?:{_WORDS})[-_=]?(\d+)(?=$|[-_.])", re.IGNORECASE)
_FAIRSEQ = lazy_regex(r"checkpoint_\d+_(\d+)\.pt")
LARGEST_JSON = 64 << 20


def step_in_name(name: str) -> int | None:
    """Read the step from a name: ``checkpoint-500``, ``epoch=1-step=20.ckpt``, ``iter_0000100``."""
    if fairseq := _FAIRSEQ.fullmatch(name):
        return int(fairseq[1])
    found = _IN_NAME.findall(name)
    return int(found[-1]) if found and len(found[-1]) < 16 else None


def step_of(path: Path, files: list[FileFacts]) -> int | None:
    """The step of a checkpoint, from its metadata, else its name, else its files."""
    if path.is_dir():
        for name, key in (("manifest.json", "step"), ("trainer_state.json", "global_step"), ("state.json", "step")):
            noted = read_json(path / name)
            if isinstance(noted, dict) and type(noted.get(key)) is int and 0 <= noted[key] < 1 << 62:
                return int(noted[key])
    if (named := step_in_name(path.name)) is not None:
        return named
    for file in files:
        for key in ("global_step", "global_steps", "step", "iteration", "iter_num", "iter", "num_updates", "steps"):
            if key in file.marks:
                return file.marks[key]
    return None


def read_json(path: Path) -> Any:
    """Read a small JSON file; None if missing or unreadable."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_JSON:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
