"""Machine-readable inspections: SARIF 2.1.0 for code scanning, GitHub workflow commands, JUnit XML for CI systems."""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.registry import rule_of
from stayfinite.rules.rule import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
GITHUB_LEVELS = SARIF_LEVELS | {"info": "notice"}

_NOT_XML = lazy_regex("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_sarif(inspection: Mapping[str, Any]) -> str:
    """The inspection as one run. Ignored findings are included as suppressed."""
    found = [(finding, None) for finding in inspection["findings"]]
    found += [(each["finding"], each) for each in inspection["ignored"]]
    codes = sorted({finding["code"] for finding, _ in found})
    rules = [_rule(rule_of(code)) for code in codes]
    driver = {"name": "stayfinite", "version": version("stayfinite"), "rules": rules}
    run = {
        "tool": {"driver": driver},
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
        "defaultConfiguration": {"level": SARIF_LEVELS[rule.severity]},
    }


def _result(finding: Mapping[str, Any], index: int, ignored: Mapping[str, Any] | None) -> dict[str, Any]:
    place = finding.get("place")
    result: dict[str, Any] = {
        "ruleId": finding["code"],
        "ruleIndex": index,
        "level": SARIF_LEVELS[finding["severity"]],
        "message": {"text": _in_words(finding)},
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
    if not whole.is_relative_to(Path.cwd()):
        return {"uri": whole.as_uri()}
    inside = whole.relative_to(Path.cwd())
    if ".." in inside.parts:
        return {"uri": whole.resolve().as_uri()}
    return {"uri": quote(inside.as_posix()), "uriBaseId": "SRCROOT"}


def _fingerprint(code: str, place: Mapping[str, Any] | None, evidence: Iterable[str]) -> str:
    """A hash that does not change when only line numbers do."""
    path = "" if place is None else place["path"]
    said = [re.sub(rf"{re.escape(path)}:\d+", path, line) if path else line for line in evidence]
    return sha256("\0".join((code, path, *said)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def as_github(inspection: Mapping[str, Any]) -> str:
    """One command per line, as in `::error file=train.yaml,line=3,col=16::...`; empty without findings."""
    return "\n".join(_command(finding) for finding in inspection["findings"])


def _command(finding: Mapping[str, Any]) -> str:
    place = finding.get("place")
    properties = {"title": f"{finding['code']} {finding['cause']}"}
    if place is not None:
        line, column, end = str(place["line"]), str(place["column"]), str(place["end_column"] - 1)
        where = {"file": place["path"], "line": line, "endLine": line, "col": column, "endColumn": end}
        properties = where | properties
    parts = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{GITHUB_LEVELS[finding['severity']]} {parts}::{_data(_in_words(finding))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_junit(inspection: Mapping[str, Any]) -> str:
    """Checks as test cases: errors and warnings fail, skipped checks give their reason."""
    cases = [line for line in inspection["checks"] if line["status"] != "note"]
    places = {(each["code"], "; ".join(each["evidence"])): each.get("place") for each in inspection["findings"]}
    failed = sum(line["status"] in ("warn", "fail") for line in cases)
    skipped = sum(line["status"] == "skip" for line in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = Element("testsuites", counts | {"name": "stayfinite"})
    suite = SubElement(suites, "testsuite", counts | {"name": "stayfinite check"})
    for line in cases:
        place = places.get((line["code"], line["seen"]))
        where = {"file": _xml(place["path"]), "line": str(place["line"])} if place else {}
        names = {"classname": _xml(f"stayfinite.{line['group']}"), "name": _xml(line["title"]), "time": "0"}
        case = SubElement(suite, "testcase", names | where)
        if line["status"] in ("warn", "fail"):
            kind = "error" if line["status"] == "fail" else "warning"
            failure = SubElement(case, "failure", message=_xml(f"{line['code']}: {line['seen']}"), type=kind)
            failure.text = _xml(f"{line['seen']}\nFix: {line['fix']}")
        elif line["status"] == "skip":
            SubElement(case, "skipped", message=_xml(line["seen"]))
    indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites, encoding="unicode")


def _xml(text: str) -> str:
    """Replace characters that XML forbids even when escaped."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _in_words(finding: Mapping[str, Any]) -> str:
    return "\n".join((finding["title"], *finding["evidence"], f"Fix: {finding['fix']}"))
