"""Count the elements of the weights next to a config, from headers only."""

from __future__ import annotations

import math
from pathlib import Path

from stayfinite.readers.checkpoints.formats.opening import read_file

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
