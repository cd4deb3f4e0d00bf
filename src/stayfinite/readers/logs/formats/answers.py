"""What a model answers, where a log shows it beside the right answers or class by class.

::

    true:  [6, 6, 9, 2]
    predict:  [8, 9, 8, 8]

               precision    recall  f1-score   support
            0       0.50      1.00      0.67       500
            1       0.00      0.00      0.00       500

    tensor([[0.4987, 0.5013],
            [0.4987, 0.5013]], grad_fn=<SoftmaxBackward0>)

The number of different answers becomes the metric `confusion/answers`; 1 is the same answer to everything.
"""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.formats.format import Format, Head
from stayfinite.readers.logs.formats.other_metrics import ANSWERS
from stayfinite.readers.logs.reading import Reading

_SHOWN = lazy_regex(
    r"(?<![\w./-])(?:(?P<answer>pred(?:ict(?:ed|ions?|s)?|s)?|hyp(?:othes[ie]s)?|decoded|guess(?:ed)?)"
    r"|(?P<truth>true|(?:ground )?truth|targets?|labels?|ref(?:erence)?s?|gt|actual|expected|real))"
    r"(?: (?:labels?|class(?:es)?|values?|text|answers?))?\s?(?:[:=]|->)\s?",
    re.IGNORECASE,
)
_ITEMS = lazy_regex(r"(?:tensor\()?\[([-\d., ]{3,400})\]")
_LOSS = lazy_regex(r"\b(?:loss|acc\w*|epoch|step|iter\w*)\b", re.IGNORECASE)
_AROUND = " \t,;|'\"()>"
DIFFERENT = 4
"""Right answers that differ, of which each got the same."""
OF_TWO = 8
"""So many where there are only two or three."""
ROWS = 4
"""Rows of an output, or outputs of several digits, of which none is like another by chance."""
DIGITS = 4
MOST = 64
_COUNTED = lazy_regex(
    r"\s*+(?:predict\w{0,8}|preds)\b[^{\n:=]{0,30}[:=]\s?(?:Counter\()?\{((?:'?\w{1,20}'?:\s?\d{1,9}(?:,\s?)?){1,40})"
    r"\}",
    re.IGNORECASE,
)
"""How often each class was answered."""


class ShownAnswers(Format):
    """Answers and right answers, on one line or on lines in turn."""

    marks = ("pred", "true", "truth", "target", "label", "hyp", "ref", "gt", "actual", "decoded")

    def __init__(self) -> None:
        self._answers: list[str] = []
        self._truths: list[str] = []

    def read(self, line: str, start: int) -> Reading | None:
        counted = _COUNTED.match(line, start)
        if counted is not None:
            counts = [int(count) for count in re.findall(r":\s?(\d+)", counted[1])]
            several = float(sum(count > 0 for count in counts))
            enough = sum(counts) >= OF_TWO
            return Reading("", constants={ANSWERS: several} if enough else {}, is_point=False, has_shape=False)
        found = list(_SHOWN.finditer(line, start))
        if not found or line[start : found[0].start()].strip(" \t[]#:.)(|-0123456789") or _LOSS.search(line, start):
            return None
        ends = [*(match.start() for match in found[1:]), len(line)]
        for match, end in zip(found, ends, strict=True):
            kept = self._answers if match["answer"] else self._truths
            if len(kept) < MOST:
                kept.append(line[match.end() : end].strip(_AROUND))
        count = min(len(self._answers), len(self._truths))
        reading = Reading("", is_point=False, has_shape=False, is_message=True)
        pairs = list(zip(self._answers[:count], self._truths[:count], strict=True))
        each = [pair for answer, truth in pairs for pair in _item_by_item(answer, truth)]
        exact = len(each) >= ROWS and all(len(answer) > DIGITS for answer, _ in each)
        if exact and len({truth for _, truth in each}) > 1:
            reading.constants = {ANSWERS: float(len({answer for answer, _ in each}))}
        elif _is_judged(pairs) or (count >= 2 and _is_judged(each)):
            alike = [{answer for answer, _ in some} for some in (pairs, each) if _is_judged(some)]
            reading.constants = {ANSWERS: float(min(map(len, alike)))}
        return reading


def _item_by_item(answer: str, truth: str) -> list[tuple[str, str]]:
    """Answers and truths of a batch, printed as two lists of one length; [] otherwise."""
    lists = [_ITEMS.search(text) for text in (answer, truth)]
    items = [[] if each is None else re.split(r"[,\s]+", each[1].strip(", ")) for each in lists]
    return list(zip(*items, strict=True)) if len(items[0]) == len(items[1]) > 2 else []


def _is_judged(pairs: list[tuple[str, str]]) -> bool:
    """Whether enough different answers were called for."""
    truths = {truth for _, truth in pairs}
    return len(truths) >= DIFFERENT or (len(truths) > 1 and len(pairs) >= OF_TWO)


_HEADING = lazy_regex(r"\s*+precision\s++recall\s++f1-score\s++support\s*+$")
_CLASS = lazy_regex(r"\s*+\S.{0,40}?\s([01]\.\d{1,9})\s++([01]\.\d{1,9})\s++[01]\.\d{1,9}\s++([1-9]\d{0,12})\s*+$")
_AVERAGE = lazy_regex(r"\s*+(?:\w{1,20} avg|avg / total|accuracy)\b")


class Reports(Format):
    """scikit-learn's report of each class: one has all answers where it alone is recalled, and wholly."""

    marks = ("precision", "0.", "1.")
    waits = True

    def __init__(self) -> None:
        self._classes: list[tuple[float, float]] = []

    def read(self, line: str, start: int) -> Reading | None:
        if _HEADING.match(line, start):
            self._classes, self.is_open = [], True
            return Reading("", is_point=False, has_shape=False, is_message=True)
        if not self.is_open:
            return None
        row = _CLASS.match(line, start)
        if row is not None and not _AVERAGE.match(line, start):
            self._classes.append((float(row[1]), float(row[2])))
            answered = [recall for precision, recall in self._classes if precision or recall]
            one = len(answered) == 1 and answered[0] == 1
            so_far = {ANSWERS: float(max(len(answered), 2 - one))} if len(self._classes) > 1 else {}
            return Reading("", constants=so_far, is_point=False, has_shape=False)
        self.is_open = _AVERAGE.match(line, start) is not None
        return Reading("", is_point=False, has_shape=False) if self.is_open else None


_FIRST_ROW = lazy_regex(r"\s*+(?:\w{1,30}\s?[:=]\s?)?tensor\(\[\[([-+.,\de ]{3,400})\],?\s*+$")
_NEXT_ROW = lazy_regex(r"\s*+\[([-+.,\de ]{3,400})\](?:,\s*+$|\](?P<end>.{0,120})\)\s*+$)")
_MADE = lazy_regex(r"grad_fn=<(?:\w*Softmax|Sigmoid|Addmm|Add|Linear|View|Squeeze)", re.IGNORECASE)


class AnswersAlike(Format):
    """A printed output whose rows are all the same."""

    marks = ("[",)
    waits = True

    def __init__(self) -> None:
        self._rows: list[str] = []

    def read(self, line: str, start: int) -> Reading | None:
        first = _FIRST_ROW.match(line, start)
        row = first or (_NEXT_ROW.match(line, start) if self.is_open else None)
        self._rows = [*([] if first else self._rows[:MOST]), *([row[1].strip()] if row else [])]
        ended = row is not None and first is None and row["end"] is not None
        self.is_open = row is not None and not ended
        if row is None:
            return None
        reading = Reading("", is_point=False, has_shape=False, is_message=True)
        if ended and len(self._rows) >= ROWS and _MADE.search(line, start):
            reading.constants = {ANSWERS: float(len(set(self._rows)))}
        return reading


_PER_CLASS = lazy_regex(r"\s*+Accuracy of\s++(?:class )?\w{1,30}\s*+:\s*+(\d{1,3}(?:\.\d{1,6})?)\s?%", re.IGNORECASE)


SEVERAL = 3
"""Classes of which one has all the answers."""


class ByClass(Format):
    """The tutorial's accuracy of each class: all answers are one where it alone has 100 % and the others have 0."""

    marks = ("accuracy of",)

    def __init__(self) -> None:
        self._right: list[float] = []

    def read(self, line: str, start: int) -> Reading | None:
        row = _PER_CLASS.match(line, start)
        if row is None:
            return None
        self._right = [*self._right[-MOST:], float(row[1])]
        one = max(self._right) == 100 and sum(self._right) == 100
        told = {ANSWERS: 1.0 if one else 2.0} if len(self._right) >= SEVERAL else {}
        return Reading("", constants=told, is_point=False, has_shape=False)


class Detections(Format):
    """ultralytics' line for all classes: `all  128  929  0.61  0.52  0.55  0.36`, of which the third is the mAP."""

    kind = "ultralytics"
    marks = ("all ",)
    heads = (
        Head(
            r"\s*+all\s++\d++\s++\d++\s++[\d.e-]++\s++[\d.e-]++\s++(?P<map50>\d[\d.e-]*+)(?:\s++[\d.e-]++){1,6}\s*+$",
            at_start=True,
            pairs=False,
            is_point=False,
        ),
    )


_OF_PARAMETER = lazy_regex(
    r"\s*+[\w.]{0,160}?(?:weight|bias)\b(?:(?P<named>[^\d\n]{0,24}?grad[^\d\n]{0,24}?)|[\s:,|=]{1,8}(?=None\b))"
    r"(?:None|(?:tensor\()?(?P<number>nan|-?inf|[-+]?\d[\d.]{0,16}+(?:e[-+]?\d{1,3})?+)(?:,[^()\n]{0,80})?\)?)\s*+$",
    re.IGNORECASE,
)


class ParameterGradients(Format):
    """The gradient of each parameter on a line of its own: `fc1.weight None`, `fc1.bias grad: tensor(0.)`."""

    marks = (".weight", ".bias")

    def read(self, line: str, start: int) -> Reading | None:
        row = _OF_PARAMETER.match(line, start)
        if row is None:
            return None
        if row["number"] is None:
            return Reading("plain", constants={"grad_norm": 0.0}, has_shape=False, is_message=True)
        return Reading("plain", fields=[("grad_norm", *row.span("number"))], is_message=True)
