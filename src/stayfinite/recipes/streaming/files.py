"""Files of a stream, recorded at the start of a run and compared on resume."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Source
from stayfinite.recipes.running.records import write_record

FILE = "data.json"
SHOWN = 3


def mark_of(files: Sequence[Source], *more: object) -> str:
    """A hash of files, sizes and settings."""
    listed = [[str(file.path), file.size] for file in files]
    return hashlib.blake2b(json.dumps([listed, [str(each) for each in more]]).encode(), digest_size=16).hexdigest()


def require_same_files(files: Sequence[Source], run: Path) -> None:
    """Compare the files with those the run was started with.

    Raises:
        UsageError: one is missing, changed or new, so that the saved position is meaningless.
    """
    try:
        before = json.loads((run / FILE).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    now = {str(file.path): file.size for file in files}
    gone = [path for path in before if path not in now]
    changed = [f"{path} ({before[path]:,} bytes, now {now[path]:,})" for path in before if now.get(path, -1) >= 0
               and now[path] != before[path]]  # fmt: skip
    new = [path for path in now if path not in before]
    for found, words in ((gone, "gone"), (changed, "changed"), (new, "new")):
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise UsageError(
                f"{run} was started with other files. {words}: {', '.join(found[:SHOWN])}{more}",
                fix="restore the files to resume; --output-dir NEW to start over with these",
            )


def note_files(files: Sequence[Source], run: Path) -> None:
    """Record the files of a run."""
    run.mkdir(parents=True, exist_ok=True)
    write_record(run / FILE, {"version": 1, "files": {str(file.path): file.size for file in files}})
