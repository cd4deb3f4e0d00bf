"""Symptoms reported in words: `loss is always 0`, `weights are not changing`, `stuck around 1.11`.

Subjects and predicates are matched separately, so that unknown sentences are understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.signs.nan_words import says_not_finite
from stayfinite.rules.signs.shown_text import shows_repetition
from stayfinite.rules.signs.told_scores import tells_low_score, tells_what_was_hoped_for

Kind = Literal[
    "not finite",
    "zero loss",
    "zero gradient",
    "still",
    "weights still",
    "explodes",
    "same answers",
    "rate 0",
    "rate still",
    "worse after loading",
    "bad answers",
    "low score",
    "score falls",
    "negative loss",
    "not as expected",
]

_LOSS = r"(?:(?:\w{1,16}_)?loss(?:es)?|cost|objective|error|perplexity|ppl)"
_GRADIENT = r"(?:grad(?:ient)?s?(?:[_ ]norms?)?|grad of)"
_WEIGHTS = r"(?:weights?|param(?:eter)?s?)"
_RATE = r"(?:lr|learning[_ ]rate)"
_SCORE = (
    r"(?:(?:\w{1,16}_)?acc(?:uracy)?|bleu|rouge|f1|m?ap|auc|(?:mean )?m?iou|dice|recall|precision|"
    r"score|reward|metrics?|psnr|ssim)"
)
_LEARNS = rf"(?:{_LOSS}|{_SCORE}|model|network|net|agent|policy|generator|discriminator|\w+(?=:))"
_NEAR, _FAR = r"(?:[^.;\n]|\.(?=\d)){0,24}", r"(?:[^.;\n]|\.(?=\d)){0,40}"
_IS = (
    r"(?:always|constantly|all the time|every (?:step|epoch|iteration)|throughout|from the (?:start|beginning)|only|"
    r"just|stays?|remains?|keeps?|stuck|is|are|becomes?|was|goes to|drops? to|fell to)"
)
_ZERO = r"(?:exactly |always |all |constantly |still |at |to )*(?:zero|0(?:\.0+)?)\b(?!\.\d|[ /]*%)(?! ?[-x/*])"
_NOT = r"(?:(?:does|do|did|is|are|was)(?: not|n't)|not|never|doesnt|dont|didnt|hardly|barely)\s(?:\w+\s){0,2}"
_STAYS = (
    r"(?:stay|remain)(?:s|ed|ing)? (?:at|around|about|near|more or less|the same|constant|between|above)|stands? still|"
    r"same value"
)
_GROWS = (
    r"explod\w*|diverg(?:e|es|ed|ing)\b|blow(?:s|ing)? up|blew up|sky-?rocket\w*|shoots? up|"
    r"(?:very |extremely |absurdly )(?:large|high)|huge\b|enormous\b|out of control"
)
_ALONE = (
    r"^\W*(?:(?:it|this|that|which|and|but|both|value|always|just|only)\s+){0,2}(?:"
    r"(?:stay|remain)(?:s|ed|ing)?\b(?! (?:stable|finite|healthy|fine))|stuck\b|(?:stays )?constant\b|unchanged\b|"
    r"(?:with )?(?:no|without) (?:any )?(?:change|improvement|progress|convergence|learning)\b|flat\b|"
    r"the same (?:value )?(?:for|in|at|after|every)\b|"
    r"(?:(?:does|do|did|is|are|was)(?: not|n't)|not|never|doesnt|dont|didnt)\s(?:\w+\s){0,2}"
    r"(?:chang|improv|decreas|mov|learn|converg|drop|fall|reduc|go(?:es|ing)? (?:down|up|below|lower))\w*)"
)
"""A remark whose subject is in the line above."""
_OUTPUT = (
    r"(?:outputs?|logits?|predict(?:s|ed|ions?)?|probabilit\w+|answers?|class(?:es)?|labels?|sentences?|tokens?|"
    r"translations?|captions?|images?|masks?|samples?|responses?|actions?|embeddings?|values?)"
)
_EVERY = r"(?:all|every|each|any|always|regardless|whatever|no matter|only)"
_VOID = (
    r"(?:zeros?|0s?|black|blank|white|gr[ae]y|empty|background|the same|identical|constant|one (?:class|color|value)|"
    r"(?:class|label) \d+)"
)
_LOADS = r"(?:resum\w*|load\w*|restart\w*|reload\w*)"

_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("zero loss", rf"\b{_LOSS}\b\W{{0,3}}{_NEAR}\b{_IS}\W{{1,3}}{_ZERO}"),
    (
        "zero gradient",
        rf"\b{_GRADIENT}\b{_NEAR}\b(?:{_IS}\W{{1,3}}{_ZERO}|none\b|vanish\w*)|\bno gradients?\b",
    ),
    ("rate 0", rf"\b{_RATE}\b{_NEAR}\b(?:{_IS}|decreas\w+ to|decays? to)\W{{1,3}}{_ZERO}"),
    (
        "weights still",
        (
            rf"\b{_WEIGHTS}\b{_NEAR}(?:(?:not|never|n't) (?:be(?:ing)? )?(?:chang|updat|mov|train)\w*|"
            r"\b(?:stay|remain)s? (?:the same|unchanged))"
        ),
    ),
    (
        "same answers",
        (
            rf"^(?!.*\b{_LOSS}\b)(?=.*\b{_EVERY}\b)(?=.*\b(?:same|identical|constant)\b).*\b{_OUTPUT}\b|"
            r"\bpredict(?:s|ed|ing)? (?:only|always|just|the same|one class|all)\b|"
            r"\balways (?:predict|output|answer|return|generat|produc|giv)\w*|"
            rf"\b{_OUTPUT} (?:(?:is|are|were|was|become|becomes|look|looks|come out|turn out|end up|all|"
            rf"only|completely|entirely|just|pure|"
            rf"mostly|always) )+"
            rf"{_VOID}\b|\b{_OUTPUT} (?:all|only) (?:zeros?|0s?|black|blank)\b|"
            r"\b(?:mode|posterior|representation\w*|model|training|policy|entropy|codebook|output)s? (?:has |"
            r"have )?collaps\w+"
        ),
    ),
    (
        "still",
        (
            rf"\b{_LEARNS}\b{_FAR}?[\s:]{_NOT}"
            r"(?:decreas\w*|go(?:es|ing)? (?:down|lower|below)|get\w* lower|dip\w* below|"
            r"come?s? down|chang\w*|mov\w*|diminish\w*|drop\w*|reduc\w*|fall\w*|"
            rf"increas\w*)|\b(?:{_LEARNS}|training|it)\b{_FAR}?[\s:]{_NOT}(?:improv\w*|learn\w*|converg\w*)|"
            rf"\b{_LOSS}\b{_FAR}\b(?:stuck|constant|flat|unchanged|{_STAYS})\b|"
            rf"\b{_LOSS}\b{_FAR}\bstill\b{_NEAR}\bafter\b|"
            rf"\b(?:all|always|every)\b{_NEAR}\b(?:the )?same\b{_NEAR}\b{_LOSS}\b|"
            rf"\bsame\b{_NEAR}\b(?:{_LOSS}|{_SCORE})\b{_NEAR}\b(?:every|each|all)\b|"
            rf"\b(?:{_LOSS}|{_SCORE})\b{_NEAR}\bsame\b{_NEAR}\b(?:every|each|all) (?:epoch|step|iter)|"
            rf"\b{_SCORE}\b{_NEAR}\b(?:for|in|at) (?:all|every|each) (?:\w+ )?(?:epoch|step|iter|class)|"
            rf"\b{_SCORE}\b{_FAR}\b(?:stuck|constant|flat|unchanged|(?:stay|remain)(?:s|ed|ing)? (?:at|around|about|"
            rf"near|0|zero|low|random))\b|"
            rf"\b{_SCORE}\b{_NEAR}\b(?:always|constantly|only|just|still) {_ZERO}|"
            rf"\b(?:{_LOSS}|{_SCORE})\b{_NEAR}\balways (?:at |around |about |exactly |equal to )?~?\d|{_ALONE}"
        ),
    ),
    (
        "bad answers",
        (
            rf"\b(?:outputs?|answers?|responses?|completions?|generat\w+|samples?|translations?)\b{_FAR}?"
            r"(?:\b(?:empty|blank|gibberish|garbage|nonsense|rubbish|unrelated|(?:looks? like|pure|only|just) noise|"
            r"repeat\w*)\b|"
            r"[\"']{2}(?:\W|$))|\bno new tokens generated\b|\bgenerat\w+ (?:\w+ ){0,2}(?:garbage|gibberish|nonsense)\b|"
            r"\brepeat(?:s|ing)? (?:the (?:same|last|first|previous)|itself|one (?:word|token|phrase))\b|"
            r"\bno (?:detections?\b|(?:boxes|objects|predictions?) (?:(?:are|is|"
            r"were) )?(?:detected|predicted))"
        ),
    ),
    (
        "score falls",
        (
            rf"\b(?:{_SCORE}|performance|results?)\b{_FAR}\b(?:drop(?:s|ped)?|falls?|fell|plummet\w*|collaps\w+|"
            rf"degrad\w+|"
            r"(?:gets?|got|becomes?) worse)\b"
        ),
    ),
    ("negative loss", rf"\b{_LOSS}\b{_NEAR}\b(?:is|becomes?|became|goes|turns?|gets?) negative\b|\bnegative {_LOSS}\b"),
    (
        "rate still",
        (
            rf"\b{_RATE}\b{_NEAR}\b(?:(?:stay|remain)(?:s|ed|ing)? (?:at|the same|constant|fixed)|"
            r"(?:never|not|n't) (?:decay|chang|warm|follow|updat|decreas)\w*)"
        ),
    ),
    (
        "explodes",
        (
            rf"\b(?:{_LOSS}|{_GRADIENT}|training|it)\b{_FAR}\b(?:{_GROWS})|"
            rf"\b{_LOSS}\b{_NEAR}\b(?:increas(?:es|ing)|ris(?:es|ing)|grow(?:s|ing)|goes up|jump(?:s|ed)? to|"
            rf"spik(?:es|ed))"
        ),
    ),
    (
        "worse after loading",
        (
            rf"\b(?:after|when|on|once|upon)\b[^;\n]{{0,30}}\b{_LOADS}\b[^.;\n]{{0,60}}\b(?:{_LOSS}|{_SCORE}|"
            rf"results?)\b|"
            rf"\b{_LOADS}\b[^;\n]{{0,60}}\b{_LOSS}\b[^.;\n]{{0,20}}\b(?:higher|worse|larger|bigger|jumps?|"
            r"starts? (?:over|again))\b|"
            rf"\b(?:{_LOSS}|{_SCORE}|performance|results?)\b[^.;\n]{{0,40}}\b(?:higher|worse|lower|larger|bigger|"
            rf"jump\w*|reset\w*|"
            rf"collaps\w+|drop\w*|differ\w*)\b[^.;\n]{{0,20}}\b(?:after|when|once|upon|"
            rf"on)\b[^.;\n]{{0,16}}\b{_LOADS}\b|"
            r"\b(?:re)?(?:loaded|resumed)\s?[:=]\s?~?\d[\d.]*+(?!\s*(?:s|ms|sec\w*|images?|rows?|params?|samples?|"
            r"%)\b)|"
            rf"\b(?:{_LOSS}|{_SCORE})\b[^.;\n]{{0,60}}\bback (?:up )?to (?:where|the (?:start|beginning|initial))"
        ),
    ),
)


@cache
def _sentences() -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    """Compiled when the first sentence is read: a log of numbers has none."""
    return tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS)


_SENTENCE = lazy_regex(r"(?:[^.!?]|[.](?=\S))+[.!?]?")
"""A dot inside a number or a name does not end a sentence."""

_DENIED = lazy_regex(
    r"\b(?:no longer|fixed|solved|unless|whether|expected(?! (?:parameter|value))|should|would|could|may|might|"
    r"will be|ignor\w+|skipp\w+|"
    r"to (?:avoid|prevent)|(?:did not improve|not improved) (?:from|since|for)|early ?stop\w*|patience|not improved$)|"
    r"\b(?:if|when(?:ever)?)\b[^.;\n]{0,30}\b(?:loss|grad\w*|nan|weights?|lr)\b|\?\s*$",
    re.IGNORECASE,
)
"""Possibilities, questions, and early stopping messages."""

_CODE = lazy_regex(
    r"[=({\[]\s*$|^\s*(?:def|class|if|for|while|with|elif|else|try|except)\b.*:\s*$|"
    r"^\s*(?:return|import|from|assert|print)\b[ (]|==(?!\s*-?(?:nan|inf)\b)|^\s*[\w.]+\(.*\)\s*$|"
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
SWINGS = 20.0
"""Ratio of two levels that single batches do not explain."""
EXPLODES = 4.0
"""Ratio of later to earlier loss."""
LONGEST = 800
"""Longer texts are articles."""


@dataclass(frozen=True, slots=True)
class ReportedSymptom:
    """A sentence that reports a problem."""

    kind: Kind
    where: str
    text: str


def reported_symptoms(lines: Iterable[tuple[str, str]]) -> list[ReportedSymptom]:
    """Problems reported in ``(where, text)`` lines, each kind once."""
    found: dict[Kind, ReportedSymptom] = {}
    for where, text in lines:
        if len(text) > LONGEST or _CODE.search(text):
            continue
        if "low score" not in found and tells_low_score(text):
            found["low score"] = ReportedSymptom("low score", where, text.strip())
        if "not as expected" not in found and tells_what_was_hoped_for(text):
            found["not as expected"] = ReportedSymptom("not as expected", where, text.strip())
        if "bad answers" not in found and shows_repetition(text):
            found["bad answers"] = ReportedSymptom("bad answers", where, text.strip())
        for sentence in _SENTENCE.findall(text):
            if _DENIED.search(sentence):
                continue
            if "not finite" not in found and says_not_finite(sentence):
                found["not finite"] = ReportedSymptom("not finite", where, text.strip())
            for kind, pattern in _sentences():
                if kind not in found and pattern.search(sentence):
                    found[kind] = ReportedSymptom(kind, where, text.strip())
        if "explodes" not in found and (told_factor(text) >= EXPLODES or told_swing(text) >= SWINGS):
            found["explodes"] = ReportedSymptom("explodes", where, text.strip())
    return list(found.values())


def told_swing(text: str) -> float:
    """The ratio of two levels that a loss is reported to go between; 0 if there are none."""
    pairs = [(float(low), float(high)) for low, high in _BETWEEN.findall(text)]
    return max((high / low for low, high in pairs if low > 0), default=0.0)


def told_factor(text: str) -> float:
    """The growth of a loss in two reported numbers: `loss 1.2 -> 16000`; 0 if there are none."""
    pairs = [(float(before), float(after)) for before, after in _FROM_TO.findall(text)]
    return max((after / before for before, after in pairs if before > 0), default=0.0)
