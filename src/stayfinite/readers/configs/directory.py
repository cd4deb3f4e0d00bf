"""Choose the files of a directory that are worth reading as configs."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath

from stayfinite.readers.configs.files import MOST_BYTES

_SUFFIXES = re.compile(r"\.(?:ya?ml|json|json5|jsonc|toml|ini|cfg|conf|py|ipynb|sh|bash|slurm|sbatch)")
_NEVER = re.compile(
    r"tokenizer\.json|vocab.*\.json|merges\.txt|trainer_state\.json|.*\.index\.json|.*_results\.json|added_tokens\.json|"
    r"special_tokens_map\.json|run\.json|manifest\.json|state\.json|ledger\.json|autopsy\.json|incident\.json|"
    r"dataset_infos?\.json|package(-lock)?\.json|requirements.*\.txt|label\.json|conftest\.py|setup\.(py|cfg)|"
    r"README.*|LICENSE.*|dict\..*\.txt|.*\.jsonl|.*\.log|__init__\.py",
    re.IGNORECASE,
)
_NAMED_SO = re.compile(
    r"(?:.*[-_.])?(?:config|configs|settings|args|arguments|hparams|hyperparameters|params|options|command|cmd|launch|overrides|notes)"
    r"(?:[-_.].*)?\.(?:txt|md|text|dat)|config|args|cmd|command",
    re.IGNORECASE,
)
_JSON_LINES = re.compile(rb"\s*\{[^\n]*\}[ \t]*\r?\n\s*\{")
"""One record per line: a log or a dataset."""

_MOST_BYTES = 1024 * 1024
"""Does not apply to notebooks, which embed images."""


def looks_like_config(path: str | os.PathLike[str], head: bytes) -> bool:
    """Whether a file with these first bytes is a config, not a log, data or a vocabulary."""
    name = PurePath(path).name
    if name == "training_args.bin":
        return True
    if _NEVER.fullmatch(name):
        return False
    suffix = PurePath(name).suffix.lower()
    if not _SUFFIXES.fullmatch(suffix) and not _NAMED_SO.fullmatch(name):
        return False
    if b"\0" in head[:2000] and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    if suffix.startswith(".json") and (head.lstrip()[:1] == b"[" or _JSON_LINES.match(head)):
        return False
    try:
        return Path(path).stat().st_size <= (MOST_BYTES if suffix == ".ipynb" else _MOST_BYTES)
    except OSError:
        return True
