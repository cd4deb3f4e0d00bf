"""The page as one file: data, script and style inside of it, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

SCRIPTS = (
    "elements", "colors", "scales", "chart", "marks", "axes", "curves", "hands", "heat", "findings", "incidents",
    "details", "page",
)  # fmt: skip
"""In this order they make up the page's one script."""

_SAFE = str.maketrans({
    "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029",
})  # fmt: skip


def page_html(data: Mapping[str, Any], live: str | None = None) -> str:
    """The page.

    Arguments:
        data: as :func:`stayfinite.report.page.data.page_data` gives it.
        live: the address of a stream of server-sent events, each of them a change for the script's ``update``; None for
            a page that stays as it is.
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
    pieces = template.split("%%")  # every second piece is the name of a part, so that no part is looked into again
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def page_csp(live: str | None = None) -> str:
    """The content security policy of the page: its own script and style, by their hashes, and nothing else."""
    connect = "; connect-src 'self'" if live is not None else ""
    return (
        f"default-src 'none'; script-src '{_hash(_script())}'; style-src '{_hash(_style())}'; img-src data:{connect}; "
        "base-uri 'none'; form-action 'none'"
    )


def as_script_data(data: Any) -> str:
    """JSON that can stand inside of a script element, whatever is in it."""
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
