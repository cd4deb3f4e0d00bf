"""Resolve a model: a directory, a config.json, a checkpoint next to one, or a well-known name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.inspection.memory.config_reading import BESIDE, shape_from_config
from stayfinite.inspection.memory.known_shapes import KNOWN, known_as, near_names
from stayfinite.inspection.memory.plan import Shape
from stayfinite.readers.checkpoints.formats.opening import read_file

_LONGEST_CONFIG = 8 << 20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


def find_shape(model: str) -> Shape:
    """The shape of the model. Raises UsageError if the name is unknown or its config cannot be read."""
    if not model.strip():
        raise UsageError("--memory needs a model: a directory, a config.json, or a name such as t5-small")
    path = Path(model).expanduser()
    if path.is_dir() or path.is_file():
        return _from_path(path, model)
    name = known_as(model)
    if name is not None:
        return shape_from_config(KNOWN[name], name)
    looks_like_path = model.endswith((".json", *_WEIGHTS)) or model.startswith((".", "/", "~"))
    if looks_like_path:
        raise UsageError(
            f"--memory: no such file or directory: {model!r}",
            fix="give a config.json, its directory, or a name such as t5-small",
        )
    close = near_names(model)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise UsageError(
        f"--memory: {model!r} is not a file or a known name{hint}",
        fix=f"give a config.json or its directory; nothing is downloaded. Known names: {', '.join(KNOWN)}",
    )


def _from_path(path: Path, asked: str) -> Shape:
    name = path.resolve().name if path.is_dir() else asked
    return shape_from_config(_read(_config_beside(path)), name)


def _config_beside(path: Path) -> Path:
    if path.is_file() and path.suffix not in _WEIGHTS:
        return path
    folder = path if path.is_dir() else path.parent
    config = folder / "config.json"
    if config.is_file():
        return config
    if (folder / "adapter_config.json").is_file():
        raise UsageError(
            f"--memory: {folder} holds only adapters",
            fix="give their base model, and --lora with their rank",
        )
    raise UsageError(f"--memory: no config.json in {folder}", fix="give the model's config.json")


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LONGEST_CONFIG:
            text = f"--memory: {path} has {path.stat().st_size:,} bytes, too large for a config.json"
            raise UsageError(text, fix=BESIDE)
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"--memory: cannot read {path}: {error.strerror or error}"
        raise UsageError(text, fix="check the path and its permissions") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--memory: {path} is not JSON: {error}", fix=BESIDE) from error
    if not isinstance(value, dict):
        text = f"--memory: {path} must hold a JSON object, not {type(value).__name__}"
        raise UsageError(text, fix=BESIDE)
    return value


MOST_FILES = 1000


def numbers_on_disk(model: str) -> int | None:
    """Elements of all tensors in a directory's safetensors files, or in the named file.

    None if there are none or a header cannot be read.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))[:MOST_FILES]
    elif path.suffix == ".safetensors" and path.is_file():
        files = [path]
    else:
        return None
    total = 0
    for file in files:
        facts = read_file(file)
        if not facts.places:
            return None
        total += sum(math.prod(place.shape) for place in facts.places)
    return total or None
