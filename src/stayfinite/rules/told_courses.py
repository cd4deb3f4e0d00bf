"""Courses told in a sentence: `loss: 0.9, 0.5, 3.1, 22 and then inf`, `kl goes 0.02 -> 0.3 -> 7.2`.

Whoever tells a few numbers of a run has chosen them: each stands for an epoch, and they are judged as those of epochs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import column_of, is_evaluation, is_loss_part, means_loss, plain
from stayfinite.core.series import RunSeries
from stayfinite.rules.number_shapes import at_chance, diverges, finite_of, is_absurd, is_flat
from stayfinite.rules.signs.reported_symptoms import Kind, ReportedSymptom

LONGEST = 2_000
"""Characters of a text that is read for courses."""
HARDLY = 5e-3
"""Three losses this near to each other stand still."""
NORMS, FALLEN, WELL = 30.0, 0.7, 0.9
"""Growth of a gradient norm; what is left of a score that falls; a score that may stand still."""

_VALUE = (
    r"(?:~?[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+[.,]\d+|\d+\.?|\.\d+)(?:e[-+]?\d+)?(?!\d|\w{2}|:\d|\.\d)(?:\s?%)?|"
    r"-?\bnan\b|[-+]?\binf(?:inity)?\b)"
)
_WHEN = (
    r"(?:(?:\w+\s)?(?:epoch|ep|step|iter(?:ation)?|it|epoche|schritt|\u00e9poque|\u00e9poca)\s?\d+[km]?\s?[:=,]?\s)?"
)
_THEN = (
    r"(?:\s?(?:,(?=\s)|[\uff0c\u3001;]|->|=>|\u2192|\s/(?=\s)|\.{2,3}|\u2026|"
    r"\b(?:to|and|then|und|dann|auf|puis|et|luego|y)\b)\s?){1,4}"
)
_COURSE = lazy_regex(
    rf"(?<![\w.,(^*-]){_WHEN}{_VALUE}(?:(?:\s?\([^()\n]{{1,24}}\))?(?:{_THEN}|\s+(?=[-+]?\d*\.?\d)){_WHEN}{_VALUE}){{2,}}",
)
_NUMBER = lazy_regex(rf"{_WHEN}({_VALUE})")
_ASIDE = lazy_regex(r"\([^()]*\)")
_BEFORE = lazy_regex(r"[^\W\d][\w/.@-]*(?:\d\w*)?")
_SAYING = lazy_regex(
    r"(?:goes|going|went|is|was|are|were|of|from|at|to|about|around|like|values?|column|reads?|per|by|each|every|then|"
    r"ris(?:es|ing)|falls|drops|climbs|grow(?:s|ing)|(?:in|de)creas\w+|follows|starts?|beg[ai]ns|stays|keeps|logs?|history|"
    r"curve|course|prints|printed|shows|in|the|over|with|epoch|step|it|still|only|and|geht|steigt|sinkt|f\u00e4llt|"
    r"w\u00e4chst|von|ist|passe|monte|baja|sube)$",
    re.IGNORECASE,
)
"""Words between a name and its numbers."""
_SCORE = lazy_regex(
    r"(?:^|[_/])(?:\w*acc(?:uracy)?|bleu|rouge\w?|f1|m?ap|auc|auroc|m?iou|dice|recall|precision|score|r2|psnr|ssim)$"
)
_REWARD = lazy_regex(r"(?:^|[_/])(?:\w*rewards?|returns?|\w*_rew(?:ard)?_mean|win_?rate)(?:$|[_/]mean$)")
_DIVERGENCE = lazy_regex(r"(?:^|[_/])(?:\w*_)?kl(?:_\w+)?$")
_SPREAD = lazy_regex(r"(?:^|[_/])\w*entropy$")
_INSIDE = lazy_regex(
    r"(?:^|_)(?:std|norms?|ratio|weights?|activations?|amax|logits?|hidden|q_?values?|variance|alpha)(?:_(?:mean|max))?$"
)
_CHINESE = {"\u635f\u5931": "loss", "\u51c6\u786e\u7387": "accuracy", "\uc815\ud655\ub3c4": "accuracy"}


class ToldCourse(NamedTuple):
    """The numbers of one name, in the order of the text."""

    name: str
    values: list[float]


def told_courses(text: str) -> Iterator[ToldCourse]:
    """The courses of a text whose names say what they are."""
    if len(text) > LONGEST:
        return
    ended = 0
    for found in _COURSE.finditer(text):
        name = _name_before(text[max(ended, found.start() - 80) : found.start()])
        ended = found.end()
        name = name or _name_behind(text[ended : ended + 24])
        if name:
            yield ToldCourse(name, [_value(each[1]) for each in _NUMBER.finditer(_ASIDE.sub("", found[0]))])


def told_run(where: str, text: str) -> RunSeries:
    """The courses of a text as metrics of a run."""
    run = RunSeries(where, kind="told")
    for name, values in told_courses(text):
        for at, value in enumerate(values, 1):
            run.measure(name, value, step=at, line=at)
    return run


def reported_courses(lines: Iterable[tuple[str, str]]) -> list[ReportedSymptom]:
    """What courses in ``(where, text)`` lines show, each kind once."""
    found: dict[Kind, ReportedSymptom] = {}
    for where, text in lines:
        for course in told_courses(text):
            for kind in kinds_of(course):
                found.setdefault(kind, ReportedSymptom(kind, where, text.strip()))
    return list(found.values())


def kinds_of(course: ToldCourse) -> Iterator[Kind]:
    """The kinds of trouble that a course shows."""
    name, values = course
    finite = finite_of(values)
    column = column_of(name)
    if is_evaluation(name) and is_loss_part(name):
        return
    if column == "grad_norm" or _INSIDE.search(name):
        if len(finite) >= 2 and finite[-1] >= NORMS * min(finite) > 0:
            yield "explodes"
        elif not any(values) and column:
            yield "zero gradient"
    elif column == "loss" or means_loss(name):
        yield from _of_a_loss(values, finite)
    elif _SCORE.search(name) or _REWARD.search(name):
        yield from _of_a_score(finite, rewarded=_REWARD.search(name) is not None)
    elif _DIVERGENCE.search(name) and finite and finite[-1] >= max(1.0, 10 * abs(finite[0])):
        yield "explodes"
    elif _SPREAD.search(name) and len(finite) >= 3 and 0 <= finite[-1] <= 0.2 * finite[0] and _one_way(finite):
        yield "same answers"


def _of_a_loss(values: list[float], finite: list[float]) -> Iterator[Kind]:
    if len(finite) < len(values) and not math.isfinite(values[-1]):
        yield "not finite"
    if len(finite) < 3:
        return
    if not any(finite):
        yield "zero loss"
    elif diverges(finite) or is_absurd(finite):
        yield "explodes"
    elif is_flat(finite) or at_chance(finite, by_epochs=True) or max(finite) - min(finite) <= HARDLY * min(finite):
        yield "still"
    elif finite[-1] <= -1.0 and all(later < 2 * min(earlier, -0.5) for earlier, later in pairwise(finite[1:])):
        yield "negative loss"


def _of_a_score(finite: list[float], *, rewarded: bool) -> Iterator[Kind]:
    if len(finite) < 3:
        return
    best = max(finite)
    good = not rewarded and (WELL <= best <= 1 or best >= 100 * WELL)
    if best == min(finite) and not good:
        yield "still"
    elif best > 0 and finite[-1] <= FALLEN * best and finite[-1] < finite[0] + 0.5 * (best - finite[0]):
        yield "score falls"


def _one_way(values: Iterable[float]) -> bool:
    return all(later <= earlier for earlier, later in pairwise(values))


def _value(written: str) -> float:
    plainly = written.strip(" ~%").replace("\u2212", "-")
    decimal = "," in plainly and "." not in plainly and len(plainly.rpartition(",")[2]) != 3
    return float(plainly.replace(",", "." if decimal else ""))


def _name_before(text: str) -> str:
    """The name that numbers behind this text have; "" if it says none, or something else stands between."""
    for chinese, name in _CHINESE.items():
        text = text.replace(chinese, f" {name} ")
    words = _BEFORE.findall(_ASIDE.sub("", text.rpartition(". ")[2]))
    while words and _SAYING.match(words[-1]):
        words.pop()
    return _known(words)


def _name_behind(text: str) -> str:
    return _known(_BEFORE.findall(text)[:1]) if text[:1].isspace() else ""


def _known(words: list[str]) -> str:
    """The last words as a name, if it is that of a loss, a gradient norm, a score or a policy's number."""
    for many in (3, 2, 1):
        name = plain("_".join(words[-many:]))
        named = (each.search(name) for each in (_SCORE, _REWARD, _DIVERGENCE, _SPREAD, _INSIDE))
        if len(words) >= many and (column_of(name) in {"loss", "grad_norm"} or means_loss(name) or any(named)):
            return name
    return ""
