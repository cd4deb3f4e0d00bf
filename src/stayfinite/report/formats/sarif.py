"""SARIF 2.1.0 for code scanning: findings with rules, places and suppressions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stayfinite.rules.registry import rule_of
from stayfinite.rules.rule import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def as_sarif(inspection: Mapping[str, Any]) -> str:
    """The inspection as one run. Ignored findings are included as suppressed."""
    found = [(finding, None) for finding in inspection["findings"]]
    found += [(each["finding"], each) for each in inspection["ignored"]]
    codes = sorted({finding["code"] for finding, _ in found})
    run = {
        "tool": {
            "driver": {
                "name": "stayfinite",
                "version": version("stayfinite"),
                "rules": [_rule(rule_of(code)) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "originalUriBaseIds": {"SRCROOT": {"uri": Path.cwd().as_uri().rstrip("/") + "/"}},
        "results": [_result(finding, codes.index(finding["code"]), ignored) for finding, ignored in found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.slug,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.section("What it means")},
        "help": {"text": rule.fix, "markdown": rule.page.strip()},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result(finding: Mapping[str, Any], index: int, ignored: Mapping[str, Any] | None) -> dict[str, Any]:
    text = "\n".join((finding["title"], *finding["evidence"], f"Fix: {finding['fix']}"))
    place = finding.get("place")
    result: dict[str, Any] = {
        "ruleId": finding["code"],
        "ruleIndex": index,
        "level": LEVELS[finding["severity"]],
        "message": {"text": text},
        "locations": [] if place is None else [_location(place)],
        "partialFingerprints": {"stayfinite/v1": _fingerprint(finding["code"], place, finding["evidence"])},
        "properties": {"confidence": finding["confidence"]},
    }
    if ignored is not None:
        kind = "external" if ignored["where"] == "project file" else "inSource"
        result["suppressions"] = [{"kind": kind, "justification": ignored["reason"]}]
    return result


def _location(place: Mapping[str, Any]) -> dict[str, Any]:
    region = {"startLine": place["line"], "startColumn": place["column"], "endColumn": place["end_column"]}
    return {"physicalLocation": {"artifactLocation": _artifact(place["path"]), "region": region}}


def _artifact(path: str) -> dict[str, Any]:
    """File URI, relative to the working directory if inside it."""
    whole = Path.cwd() / path
    try:
        inside = whole.relative_to(Path.cwd())
    except ValueError:
        return {"uri": whole.as_uri()}
    if ".." in inside.parts:
        return {"uri": whole.resolve().as_uri()}
    return {"uri": quote(inside.as_posix()), "uriBaseId": "SRCROOT"}


def _fingerprint(code: str, place: Mapping[str, Any] | None, evidence: Iterable[str]) -> str:
    """A hash that does not change when only line numbers do."""
    path = "" if place is None else place["path"]
    said = [re.sub(rf"{re.escape(path)}:\d+", path, line) if path else line for line in evidence]
    return sha256("\0".join((code, path, *said)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
