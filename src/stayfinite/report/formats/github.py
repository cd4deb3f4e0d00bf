"""GitHub workflow commands: each finding becomes an annotation on its line of a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def as_github(inspection: Mapping[str, Any]) -> str:
    """One command per line, as in `::error file=train.yaml,line=3,col=16::...`; empty without findings."""
    return "\n".join(_command(finding) for finding in inspection["findings"])


def _command(finding: Mapping[str, Any]) -> str:
    place = finding.get("place")
    properties = {"title": f"{finding['code']} {finding['cause']}"}
    if place is not None:
        line, column, end = str(place["line"]), str(place["column"]), str(place["end_column"] - 1)
        properties = {
            "file": place["path"],
            "line": line,
            "endLine": line,
            "col": column,
            "endColumn": end,
        } | properties
    parts = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    text = "\n".join((finding["title"], *finding["evidence"], f"Fix: {finding['fix']}"))
    return f"::{LEVELS[finding['severity']]} {parts}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
