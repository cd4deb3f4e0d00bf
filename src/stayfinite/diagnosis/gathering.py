"""Which files a directory stands for: the logs of one run, and the settings that lie beside them.

A directory may hold a whole project. The logs nearest to its top are taken for the run; those that lie deeper are other
runs, and are named and not read. Settings are those beside the logs and above them. Links are not followed in circles.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from stayfinite.core.lazy_regex import lazy_regex

MOST_ENTRIES = 20_000
"""Directory entries that are looked at before a directory is called too large."""

DEEPEST = 6
"""Levels below the given directory."""

MOST_LOGS = 32
MOST_CONFIGS = 16
MOST_SCRIPTS = 3
"""More scripts than this beside a log are a library, and which of them was run is anybody's guess."""

_LOG_NAMES = lazy_regex(
    r"(?:\.(?:log|out|err|jsonl|ndjson|csv|tsv)(?:\.\d+|\.gz)?|^events\.out\.tfevents.*|^trainer_log.*|"
    r"^(?:nohup|train|training|stdout|stderr|output|log|logs|console|slurm|metrics|history|results)[\w.-]*\.(?:txt|"
    r"json)|"
    r"trainer_state[\w.-]*\.json)$",
    re.IGNORECASE,
)
_CONFIG_NAMES = lazy_regex(
    r"(?:\.(?:ya?ml|toml|ini|cfg|sh)|^training_args\.bin|^args\.txt|"
    r"^(?:ds|deepspeed|zero|config|args|hparams|params|settings|adapter_config|run|training_args|trainer_config|"
    r"accelerate)"
    r"[\w.-]*\.(?:json|txt))$",
    re.IGNORECASE,
)
_SCRIPT_NAMES = lazy_regex(r"\.(?:py|ipynb)$", re.IGNORECASE)
_STEP = lazy_regex(r"(\d+)(?!.*\d)")
_PASSED_OVER = {
    ".git", ".github", "__pycache__", "node_modules", ".venv", "venv", ".ipynb_checkpoints", "site-packages", "tests",
    "docs",
}  # fmt: skip


@dataclass(slots=True)
class Gathered:
    """What was found in a directory."""

    logs: list[Path] = field(default_factory=list)
    configs: list[Path] = field(default_factory=list)
    other_runs: list[Path] = field(default_factory=list)
    """Directories deeper down that hold logs of their own."""


def gather(directory: Path) -> Gathered:
    """The files of the run that a directory stands for."""
    logs: dict[Path, list[Path]] = {}
    settings: list[Path] = []
    for path in _walk(directory):
        if _LOG_NAMES.search(path.name):
            logs.setdefault(_run_of(path), []).append(path)
        elif _CONFIG_NAMES.search(path.name) or _SCRIPT_NAMES.search(path.name):
            settings.append(path)
    if not logs:
        return Gathered(configs=_beside(settings, directory, directory))
    run = min(logs, key=lambda folder: (len(folder.parts), -_newest(logs[folder]), str(folder)))
    others = sorted(folder for folder in logs if folder != run)
    return Gathered(_one_history(logs[run])[:MOST_LOGS], _beside(settings, directory, run), others)


def named_like_a_config(path: Path) -> bool:
    """Whether the name alone says that a file holds settings."""
    return bool(_CONFIG_NAMES.search(path.name) or _SCRIPT_NAMES.search(path.name)) and not named_like_a_log(path)


def named_like_a_log(path: Path) -> bool:
    """Whether the name alone says that a file is a log."""
    return bool(_LOG_NAMES.search(path.name))


def _walk(directory: Path) -> list[Path]:
    found: list[Path] = []
    looked_at = 0
    seen: set[str] = set()
    for folder, folders, names in os.walk(directory, followlinks=False):
        depth = len(Path(folder).relative_to(directory).parts)
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER) if depth < DEEPEST else []
        for name in sorted(names):
            looked_at += 1
            path = Path(folder, name)
            real = os.path.realpath(path)
            if real not in seen and Path(real).is_file():
                seen.add(real)
                found.append(path)
        if looked_at > MOST_ENTRIES:
            break
    return found


def _run_of(path: Path) -> Path:
    """The directory of the run that a log belongs to: a checkpoint's history is that of the run it was saved by."""
    folder = path.parent
    return folder.parent if re.fullmatch(r"(?:checkpoint|step|epoch|global_step)[-_=]?\d+.*", folder.name) else folder


def _one_history(logs: list[Path]) -> list[Path]:
    """Each checkpoint repeats the history of those before it: the newest one is enough."""
    states = [path for path in logs if path.name == "trainer_state.json"]
    newest = max(states, key=_step_of, default=None)
    return [path for path in logs if path.name != "trainer_state.json" or path == newest]


def _beside(settings: list[Path], top: Path, run: Path) -> list[Path]:
    """Settings in the run's directory, in a folder of it that is meant for them, and in those above it."""
    above = {run, *(parent for parent in run.parents if parent == top or top in parent.parents)}
    near = [
        path
        for path in settings
        if path.parent in above
        or (path.parent.parent in above and path.parent.name in ("config", "configs", "conf", ".hydra", "args"))
        or (path.name == "training_args.bin" and _run_of(path) == run)
    ]
    scripts = [path for path in near if _SCRIPT_NAMES.search(path.name)]
    plain = [path for path in near if path not in scripts]
    arguments = [path for path in plain if path.name == "training_args.bin"]
    plain = [path for path in plain if path not in arguments[1:]]
    return plain[:MOST_CONFIGS] + (scripts if len(scripts) <= MOST_SCRIPTS else [])


def _newest(paths: list[Path]) -> float:
    times = []
    for path in paths:
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def _step_of(path: Path) -> tuple[int, str]:
    found = _STEP.search(path.parent.name)
    return int(found.group()) if found else 1 << 62, str(path)
