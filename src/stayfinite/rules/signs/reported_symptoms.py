"""Symptoms reported in words: `loss is always 0`, `weights are not changing`, `stuck around 1.11`.

What is said of a loss, a gradient, weights, a rate or a score is read by :mod:`told_states`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.signs.in_chinese import from_chinese
from stayfinite.rules.signs.nan_words import says_not_finite
from stayfinite.rules.signs.shown_text import shown_repetition
from stayfinite.rules.signs.told_scores import tells_low_score, tells_what_was_hoped_for
from stayfinite.rules.signs.told_states import tells_of_arrival, told_states
from stayfinite.rules.signs.usual_courses import usual_kinds

Kind = Literal[
    "not finite", "zero loss", "zero gradient", "still", "weights still", "explodes", "same answers", "rate 0",
    "rate still", "worse after loading", "bad answers", "low score", "score falls", "negative loss", "negative kl",
    "rate off", "overflows", "memory grows", "loss rises", "hangs", "not as expected",
]  # fmt: skip

_LOSS = r"(?:(?:\w{1,16}_)?loss(?:es)?|cost|objective|error|perplexity|ppl)"
_SCORE = (
    r"(?:(?:\w{1,16}_)?acc(?:uracy)?|bleu|rouge|f1|m?ap|auc|(?:mean )?m?iou|dice|recall|precision|"
    r"score|reward|metrics?|psnr|ssim)"
)
_FAR = r"(?:[^.;\n]|\.(?=\d)){0,40}"
_OUTPUT = (
    r"(?:outputs?|logits?|predict(?:s|ed|ions?)?|probabilit\w+|answers?|class(?:es)?|labels?|sentences?|tokens?|"
    r"translations?|captions?|images?|masks?|boxes|detections?|samples?|responses?|actions?|embeddings?|features?|"
    r"attentions?(?: weights| maps?)?|values?)"
)
_EVERY = r"(?:all|every|each|any|always|regardless|whatever|no matter|only)"
_VOID = (
    r"(?:zeros?|0s?|black|blank|white|gr[ae]y|empty|background|the same|identical|constant|uniform|equal(?! to)|"
    r"one (?:class|color|value)|"
    r"(?:class|label) \d+)"
)
_LOADS = r"(?:resum\w*|load\w*|restart\w*|reload\w*)"

_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("same answers",
     (rf"^(?!.*\b(?:{_LOSS}|different|other|var(?:y|ies|ied))\b)(?=.*\b{_EVERY}\b)(?=.*\b(?:same|identical|constant)\b).*\b{_OUTPUT}\b|"
      r"\bpredict(?:s|ed|ing)? (?:only|always|just|the same|one class|"
      r"all (?:the )?(?:same|0s?|zeros?|1s?|ones?|black|background|negatives?|positives?|class\b))\b|"
      r"\b(?:only|just|always) (?:predict|output|return|generat|produc)\w*+"
      r"(?! (?:the |a )?(?:\w+ )?(?:checkpoint|file|model|log)s?\b)|"
      r"\bonly (?:\w+ )?background\b|"
      r"\bpredict\w* \S{1,12} for (?:all|every|each|any)\b|"
      r"\b(?:predict|classif)\w* (?:every|each|all)(?:thing| (?:\w+ ){1,2})? ?as\b|"
      r"\bpredict(?:s|ed|ing)? (?:(?:\w+ ){1,3}everywhere|(?:the|a) (?:mean|average|constant|majority))\b|"
      r"\balways (?:answer|giv)\w*+(?! (?:me |us )?(?:a )?different)|"
      rf"\b{_OUTPUT}(?: of (?:the |my |our )?\w+)? (?:(?:is|are|were|was|become|becomes|look|looks|come out|"
      rf"turn out|end up|all|only|completely|entirely|just|pure|mostly|always) )+"
      rf"{_VOID}\b|\b{_OUTPUT} (?:all|only) (?:zeros?|0s?|black|blank)\b|"
      r"\b(?:mode|posterior|representation\w*|embedding|feature|model|training|policy|entropy|codebook|output)s? "
      r"(?:(?:has|have|is|are|was|and|then|suddenly|completely|unstable) ){0,3}collaps\w+")),
    ("bad answers",
     (r"\b(?:outputs?(?! (?:dir|folder|file|path))|answers?|responses?|completions?|generat\w+|samples?|"
      rf"translations?)\b{_FAR}?"
      r"(?:\b(?:empty|blank|gibberish|garbage|nonsense|rubbish|unrelated|(?:looks? like|pure|only|just) noise|"
      r"repeat\w*)\b|"
      r"[\"']{2}(?:\W|$))|\blooks? like (?:\w+ )?noise\b|"
      r"\bno new tokens generated\b|\bgenerat\w+ (?:\w+ ){0,2}(?:garbage|gibberish|nonsense)\b|"
      r"\b(?:giv|return|produc|generat|output)\w* (?:an? |only |just )?(?:empty|blank) (?!l(?:ist|ine))|"
      r"\bsame (?:token|word|phrase|sentence|character)s? (?:again|over|repeated)|"
      r"\bforgets? (?:everything|all|how)|"
      r"\bcatastrophic\w* forget|\beos\b[^.;\n]{0,20}\bnever\b|\bnever [^.;\n]{0,20}\beos\b|"
      r"\brepeat(?:s|ing)? (?:the (?:same|last|first|previous)|itself|one (?:word|token|phrase))\b|"
      r"\b(?:keeps?|continu\w+|endless\w*|non-?stop) (?:generating|outputting|predicting|printing)\b|"
      r"\b(?:generat\w+|answers?|outputs?|model)\b[^.;\n]{0,30}\b(?:never|not|n't) "
      r"(?:stops?|ends?|terminat\w+)\b|"
      r"\b(?:generat\w+|outputs?|answers?) lengths? (?:is |are )?(?:always|fixed|constant)|"
      r"\bno (?:detections?\b|(?:boxes|objects|predictions?) (?:(?:are|is|"
      r"were) )?(?:detected|predicted))")),
    ("still", r"^\W*(?:[\w-]+ ){1,4}(?:is |are )?not (?:learning|converging|training)\W*$"),
    ("hangs",
     (r"\b(?:trainings?|it|program|process\w*|script|job|run|gpus?|ranks?|workers?)\b[^.;\n]{0,24}"
      r"\b(?:hangs?|hung|hanging|freezes|(?:got|gets|get|is|are) (?:stuck|blocked) (?:at|in|on|before|after|"
      r"forever|when|during)(?! ?~?\d*\.\d)|deadlock\w*)")),
    ("overflows",
     (r"\boverflow(?:s|ed|ing)?\b[^.;\n]{0,30}\b(?:endless\w*|forever|constantly|always|all the time|"
      r"(?:on|at|in)? ?(?:every|each) (?:\w+ )?(?:step|iteration|update|batch))\b|"
      r"\b(?:keeps?|endless\w*|constant\w*|always) (?:\w+ )?overflow\w*|"
      r"\bloss[_ ]scal\w+[^.;\n]{0,20}\b(?:keeps? (?:on )?(?:decreas|reduc|dropp|halv|go)\w*|"
      r"(?:decreas|drop|reduc|collaps)\w* (?:\w+ )?(?:to|until) (?:0|1|zero|one)\b)")),
    ("worse after loading",
     (rf"\b(?:after|when|on|once|upon)\b[^;\n]{{0,30}}\b{_LOADS}\b[^.;\n]{{0,60}}\b(?:{_LOSS}|{_SCORE}|"
      rf"results?)\b|"
      rf"\b{_LOADS}\b[^;\n]{{0,60}}\b{_LOSS}\b[^.;\n]{{0,20}}\b(?:higher|worse|larger|bigger|jumps?|"
      r"starts? (?:over|again))\b|"
      rf"\b(?:{_LOSS}|{_SCORE}|performance|results?)\b[^.;\n]{{0,40}}\b(?:higher|worse|lower|larger|bigger|"
      rf"jump\w*|reset\w*|"
      rf"collaps\w+|drop\w*|differ\w*)\b[^.;\n]{{0,20}}\b(?:after|when|once|upon|"
      rf"on)\b[^.;\n]{{0,16}}\b{_LOADS}\b|"
      r"\b(?:re)?(?:loaded|resumed)\s?[:=]\s?~?\d[\d.]*+(?!\s*(?:s|ms|sec\w*|images?|rows?|params?|samples?|"
      r"%)\b)|"
      rf"\b(?:{_LOSS}|{_SCORE})\b[^.;\n]{{0,60}}\bback (?:up )?to (?:where|the (?:start|beginning|initial))")),
)  # fmt: skip


@cache
def _sentences() -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    """Compiled when the first sentence is read: a log of numbers has none."""
    return tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS)


_SENTENCE = lazy_regex(r"(?:[^.!?]|[.](?=\S))+[.!?]?")
"""A dot inside a number or a name does not end a sentence."""

_DENIED = lazy_regex(
    r"\b(?:no longer|fixed(?! (?:at|as|to) )|solved|unless|whether|expected(?! (?:parameter|value))|"
    r"should|would|could(?! not|n'?t| (?:this|that|it) be)|may(?! i )|might|train(?:ing)? until|"
    r"will be(?! the)|ignor\w+|skipp\w+|using (?:an? )?(?:empty|blank|default)|"
    r"to (?:avoid|prevent)|\w*loss did not improve|(?:did not improve|not improved) (?:from|since|for)|early ?stop\w*|"
    r"patience|not improved$)|"
    r"\b(?:if|when(?:ever)?(?! (?:I|we|training|trying|using)\b))\b"
    r"[^.;\n]{0,30}\b(?:loss|grad\w*|nan|weights?|lr)\b|"
    r"^(?!.*\b(?:why|how come|what (?:causes|makes|could cause))\b).*\?\s*$",
    re.IGNORECASE,
)
"""Possibilities, questions, and early stopping messages."""

_LOGGED = lazy_regex(r"\b(?:INFO|DEBUG)(?: -|:|\])|^\W*=> ")
"""A program's remark: `MIoU does not improve` is how it picks the best checkpoint."""

_CODE = lazy_regex(
    r"[=({\[]\s*$|^\s*(?:def|class|if|for|while|with|elif|else|try|except)\b.*:\s*$|"
    r"^\s*(?:return|import|assert|print)\b[ (]|^\s*from [\w.]+ import\b|==(?!\s*-?(?:nan|inf)\b)|^\s*[\w.]+\(.*\)\s*$|"
    r"^\s*[\w.\[\]]+ [-+*/]?= |^\s*#!"
)
_FROM_TO = lazy_regex(
    r"\bloss(?:es)?\b[^\d.;\n]{0,24}(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*(?:->|=>|\u2192|to|then|up to|\.\.+|,)\s*"
    r"(\d+(?:\.\d+)?(?:e\+?\d+)?)\b",
    re.IGNORECASE,
)
_BETWEEN = lazy_regex(
    r"\bloss(?:es)?\b[^\d.;\n]{0,30}\b(?:oscillat\w+|fluctuat\w+|swing\w*|jump\w*|bounc\w+|vari\w+)[^\d.;\n]{0,16}"
    r"\b(?:between|from)\s(\d+(?:\.\d+)?)\s(?:and|to)\s(\d+(?:\.\d+)?(?:e\+?\d+)?)",
    re.IGNORECASE,
)
_TOLD_LOSS = lazy_regex(
    r"\b(?:loss|perplexity|ppl)\b (?:\w+ ){0,2}?(?:is|was|of|reaches|becomes|around|about|up to|goes to) (?:\w+ )?"
    r"(\d+(?:\.\d+)?(?:e\+?\d+)?)\b",
    re.IGNORECASE,
)
ABSURD = 1e8
SWINGS = 20.0
"""Ratio of two levels that single batches do not explain."""
EXPLODES = 4.0
"""Ratio of later to earlier loss."""
LONGEST = 800
"""Longer texts are articles."""


_PERSON = lazy_regex(
    r"\b(?:I|I'm|[Mm]y|[Ww]e|[Oo]ur|you|your|[Ww]hy|[Hh]ow|[Hh]elp|[Pp]roblem|[Ii]ssue|[Bb]ug)\b|\?|[我吗为\uff1f]"
)


def by_a_person(text: str) -> bool:
    """Whether these are words of a person, not of a program."""
    return _PERSON.search(text) is not None


@dataclass(frozen=True, slots=True)
class ReportedSymptom:
    """A sentence that reports a problem."""

    kind: Kind
    where: str
    text: str


def reported_symptoms(lines: Iterable[tuple[str, str]]) -> list[ReportedSymptom]:
    """Problems reported in ``(where, text)`` lines, each kind once."""
    found: dict[Kind, ReportedSymptom] = {}
    said = [(where, from_chinese(written)) for where, written in lines]
    arrived = any(tells_of_arrival(text) for _, text in said)
    read = [each for each in said if len(each[1]) <= LONGEST and not (_CODE.search(each[1]) or _LOGGED.search(each[1]))]
    if (repetition := shown_repetition(read)) is not None:
        found["bad answers"] = ReportedSymptom("bad answers", *repetition)
    for where, text in read:
        if "low score" not in found and tells_low_score(text):
            found["low score"] = ReportedSymptom("low score", where, text.strip())
        if "not as expected" not in found and tells_what_was_hoped_for(text):
            found["not as expected"] = ReportedSymptom("not as expected", where, text.strip())
        for sentence in _SENTENCE.findall(text):
            if _DENIED.search(sentence):
                continue
            if "not finite" not in found and says_not_finite(sentence):
                found["not finite"] = ReportedSymptom("not finite", where, text.strip())
            named = [kind for kind, pattern in _sentences() if kind not in found and pattern.search(sentence)]
            for kind in (*named, *told_states(sentence)):
                found.setdefault(kind, ReportedSymptom(kind, where, text.strip()))
        if "explodes" not in found and (
            tells_absurd_loss(text) or told_factor(text) >= EXPLODES or told_swing(text) >= SWINGS
        ):
            found["explodes"] = ReportedSymptom("explodes", where, text.strip())
    usual = usual_kinds((text for _, text in said), arrived=arrived)
    if "low score" in usual:
        found.pop("low score", None)
    if arrived or found.keys().isdisjoint({"bad answers", "same answers", "low score"}):
        for kind in usual:
            found.pop(kind, None)
    return list(found.values())


def tells_absurd_loss(text: str) -> bool:
    """Whether a loss or perplexity is reported that no training has: `perplexity is 1e9`."""
    return any(float(number) >= ABSURD for number in _TOLD_LOSS.findall(text))


def told_swing(text: str) -> float:
    """The ratio of two levels that a loss is reported to go between; 0 if there are none."""
    pairs = [(float(low), float(high)) for low, high in _BETWEEN.findall(text)]
    return max((high / low for low, high in pairs if low > 0), default=0.0)


def told_factor(text: str) -> float:
    """The growth of a loss in two reported numbers: `loss 1.2 -> 16000`; 0 if there are none."""
    pairs = [(float(before), float(after)) for before, after in _FROM_TO.findall(text)]
    return max((after / before for before, after in pairs if before > 0), default=0.0)
