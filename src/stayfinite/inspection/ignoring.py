"""Findings ignored for a stated reason, by the project file or by a comment on their line."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.errors import UsageError
from stayfinite.inspection.inspection import Ignored, Inspection
from stayfinite.inspection.notes import Line
from stayfinite.rules.registry import rule_of

_COMMENT = lazy_regex(r"(?:#|//|;)\s*stayfinite:\s*ignore\b(?P<codes>\[[^\]]*\])?(?P<reason>.*)")
_EVIDENCE = lazy_regex(r"(?P<where>[^\n]*?:\d+): ")


class BadIgnore(UsageError):
    """A finding is ignored without a reason, or does not exist."""


@dataclass(frozen=True, slots=True)
class Remark:
    """`# stayfinite: ignore[SF201] reason` in a file."""

    where: str
    """Location of the comment."""
    codes: tuple[str, ...]
    reason: str
    covers: frozenset[str]
    """Locations it applies to: its own line or, if the comment is alone on it, the next."""


def remarks_in(text: str, name: str, kind: str) -> list[Remark]:
    """The ignore comments of a file. Raises BadIgnore for one without codes or reason."""
    if "stayfinite:" not in text:
        return []
    found = []
    for number, line, at in _comments(text, kind):
        match = _COMMENT.match(line, at)
        if match is None:
            continue
        where = f"{name}:{number}"
        words = (match["codes"] or "[]")[1:-1].replace(",", " ").split()
        if not words:
            raise BadIgnore(f"{where}: ignore without a code", fix="# stayfinite: ignore[SF201] why it is fine here")
        reason = match["reason"].strip(' \t\\,:"-')
        codes = tuple(known_code(word, where) for word in words)
        require_reason(codes, reason, where, "# stayfinite: ignore[{code}] why it is fine here")
        alone = not line[:at].strip(" \t\"'")
        found.append(Remark(where, codes, reason, frozenset({where, f"{name}:{number + 1}"} if alone else {where})))
    return found


def known_code(word: str, where: str) -> str:
    """The code of a rule given by code or slug. Raises BadIgnore with the location."""
    try:
        return rule_of(word).code
    except UsageError as error:
        raise BadIgnore(f"{where}: {error.message}", fix=error.fix) from None


def require_reason(codes: Sequence[str], reason: Any, where: str, example: str) -> None:
    """Raise BadIgnore if there is no reason."""
    if not isinstance(reason, str) or not reason.strip():
        raise BadIgnore(f"{where}: {', '.join(codes)} ignored without a reason", fix=example.format(code=codes[0]))


def _comments(text: str, kind: str) -> Iterator[tuple[int, str, int]]:
    """``(line number, line, column)`` of each possible comment."""
    if kind == "script":
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    yield token.start[0], token.line.split("\n")[0], token.start[1]
        except (tokenize.TokenError, SyntaxError):
            return  # the part before the syntax error has been read
        return
    for number, line in enumerate(text.split("\n"), 1):
        found = re.search(r"(?:#|//|;)\s*stayfinite:", line)
        if found:
            yield number, line, found.start()


def without_ignored(
    found: Inspection, *, project: Mapping[str, str] | None = None, remarks: Iterable[Remark] = ()
) -> Inspection:
    """Move ignored findings to ``ignored``, and report comments that ignore nothing.

    ``project`` has reasons by code, for findings anywhere; ``remarks`` are comments, for findings on their lines.
    """
    project, remarks = project or {}, list(remarks)
    kept: list[Finding] = []
    ignored: list[Ignored] = []
    used: set[str] = set()
    for finding in found.findings:
        if finding.code in project:
            ignored.append(Ignored(finding, project[finding.code], "project file"))
            continue
        mine = [remark for remark in remarks if finding.code in remark.codes]
        left = finding
        for remark in mine:
            if _places(left) & remark.covers:
                used.add(remark.where)
                rest = _elsewhere(left, remark.covers)
                if rest is None:
                    ignored.append(Ignored(left, remark.reason, remark.where))
                    break
                left = rest
        else:
            kept.append(left)
    lines = [_as_ignored(line, ignored, kept) for line in found.lines]
    for remark in remarks:
        if remark.where not in used:
            what = f"unused: no {' or '.join(remark.codes)} here ({remark.where})"
            lines.append(Line(status="note", group="Ignored", title="ignore comments", seen=what))
    return replace(found, findings=kept, lines=lines, ignored=[*found.ignored, *ignored])


def _places(finding: Finding) -> set[str]:
    matches = (_EVIDENCE.match(line) for line in finding.evidence)
    return {finding.where, *(each["where"] for each in matches if each)}


def _elsewhere(finding: Finding, covered: frozenset[str]) -> Finding | None:
    """The finding without evidence from these locations; None if no evidence is left."""
    left = []
    for line in finding.evidence:
        match = _EVIDENCE.match(line)
        if match is None or match["where"] not in covered:
            left.append((match["where"] if match else "", line))
    where = next((place for place, _ in left if place), None)
    if where is None:
        return None
    return replace(finding, where=where, evidence=tuple(line for _, line in left), place=None)


def _as_ignored(line: Line, ignored: Sequence[Ignored], kept: Sequence[Finding]) -> Line:
    reason = next((each.reason for each in ignored if each.finding.code == line.code), None)
    if not line.code or reason is None or any(finding.code == line.code for finding in kept):
        return line
    return replace(line, status="skip", seen=f"{line.code} ignored: {reason}", code="", fix="")
