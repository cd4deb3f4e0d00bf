"""Write the page atomically."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stayfinite.report.page.html import page_html


def write_page(data: Mapping[str, Any], out: Path) -> int:
    """Write the page, replacing an earlier one. Returns its size in bytes.

    Raises:
        OSError: could not write; an earlier page is intact.
    """
    content = page_html(data).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        aside.replace(out)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    return len(content)
