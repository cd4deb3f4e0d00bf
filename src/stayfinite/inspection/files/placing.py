"""Find the columns of `train.yaml:3` that a finding's fix changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from stayfinite.core.finding import Finding, Place
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.sources import COMMAND, Source
from stayfinite.readers.configs.spans import Span, spans_of

_NUMBERED = lazy_regex(r"(?P<path>.+):(?P<line>\d+)$", re.DOTALL)


def placed(findings: Iterable[Finding], sources: Sequence[Source]) -> list[Finding]:
    """Add line and columns of the fix to findings that name a file."""
    texts = {source.name: source.text.split("\n") for source in sources if source.name != COMMAND}
    by_place: dict[str, list[Setting]] = {}
    for source in sources:
        for setting in source.settings:
            by_place.setdefault(setting.where, []).append(setting)
    return [replace(each, place=_place(each, texts, by_place)) for each in findings]


def _place(finding: Finding, texts: dict[str, list[str]], settings: dict[str, list[Setting]]) -> Place | None:
    numbered = _NUMBERED.match(finding.where)
    path = numbered["path"] if numbered else finding.where
    if path not in texts:
        return None
    line = int(numbered["line"]) if numbered else 1
    text = texts[path][line - 1] if 0 < line <= len(texts[path]) else ""
    whole = Span(len(text) - len(text.lstrip()), max(len(text.rstrip()), 1))
    span = _meant(text, finding, settings.get(finding.where, [])) or whole
    return Place(path=path, line=max(line, 1), column=span.start + 1, end_column=max(span.end, span.start + 1) + 1)


def _meant(text: str, finding: Finding, settings: Sequence[Setting]) -> Span | None:
    """The span of the value that the evidence refers to; of the name if the name is wrong."""
    evidence = " ".join(finding.evidence)
    mentioned = [each for each in settings if re.search(rf"(?<![\w.]){re.escape(each.name)}(?!\w)", evidence)]
    mentioned = mentioned or [each for each in settings if re.search(rf"\b{re.escape(last_step(each))}\b", evidence)]
    for setting in mentioned or settings[:1]:
        spans = spans_of(text, setting.name)
        if spans is not None:
            return spans[0] if finding.cause == "unknown-setting" else spans[1]
    return None
