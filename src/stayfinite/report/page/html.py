"""Assemble the page as one file, with a policy that blocks everything else, and write it atomically."""

import base64
import contextlib
import hashlib
import html
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

SCRIPTS = (
    "elements", "colors", "scales", "chart", "marks", "axes", "curves", "hands", "heat", "findings", "incidents",
    "details", "page",
)  # fmt: skip
"""Concatenated in this order."""

_SAFE = str.maketrans({
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029",
})  # fmt: skip


def page_html(data: Mapping[str, Any], live: str | None = None) -> str:
    """The page as HTML.

    Arguments:
        data: from :func:`stayfinite.report.page.data.page_data`.
        live: URL of a stream of server-sent events, each an argument to the script's ``update``; None for a static
            page.
    """
    parts = {
        "TITLE": html.escape(f"{data['title']} · stayfinite" if data.get("title") else "stayfinite"),
        "POLICY": html.escape(page_csp(live)),
        "STYLE": _style(),
        "SCRIPT": _script(),
        "DATA": as_script_data(data),
        "LIVE": as_script_data(live),
    }
    template = _file("page.html")
    pieces = template.split("%%")  # every second piece names a part; inserted parts are not scanned again
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def page_csp(live: str | None = None) -> str:
    """Content security policy: only the page's own script and style, by hash."""
    connect = "; connect-src 'self'" if live is not None else ""
    return (
        f"default-src 'none'; script-src '{_hash(_script())}'; style-src '{_hash(_style())}'; img-src data:{connect}; "
        "base-uri 'none'; form-action 'none'"
    )


def as_script_data(data: Any) -> str:
    """JSON that is safe inside a script element."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_SAFE)


@cache
def _script() -> str:
    body = "\n".join(_file(f"script/{name}.js").rstrip() for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}\n}})();\n'


@cache
def _style() -> str:
    return _file("page.css")


def _file(name: str) -> str:
    return files("stayfinite.report.page").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


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
