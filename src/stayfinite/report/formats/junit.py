"""JUnit XML for CI systems: one test case per check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from stayfinite.core.lazy_regex import lazy_regex

_NOT_XML = lazy_regex("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
