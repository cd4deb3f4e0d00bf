"""Reported scores: `accuracy around 0.001`, `expected from the paper: 33 dB`, `15 instead of 33`."""

from __future__ import annotations

import math
import re

from stayfinite.core.lazy_regex import lazy_regex

_NUMBER = r"(\d+(?:\.\d+)?)"
_ROUGHLY = (
    r"(?:around|about|approx\w*|some|only|just|below|under|at most|~|\u2248|stuck at|stays? at|remains? at|still)"
)
_TOLD = lazy_regex(
    rf"\b(acc(?:uracy)?|psnr|bleu|f1|m?ap(?:50)?|m?iou|dice|recall|"
    rf"precision)\b[^\n;.\d]{{0,25}}?{_ROUGHLY}\W{{0,3}}{_NUMBER}",
    re.IGNORECASE,
)
_ZERO = lazy_regex(
    r"\b(?:acc(?:uracy)?|psnr|bleu|rouge|f1|m?ap(?:50)?|m?iou|dice|recall|precision|success rate|"
    r"score)\b[^\n;.\d]{0,16}"
    r"\b(?:is|are|stays?|remains?|was|always|only|gives?|gets?|=)\s(?:\w+ ){0,2}(?:zero|0(?:\.0+)?)(?:\s?%)?(?![\d.])|"
    r"\b(?:acc(?:uracy)?|bleu|f1|m?ap(?:50)?|m?iou|dice)\b\s?[:=]\s?0(?:\.0+)?\s?%?\s(?:for|in|at|after|on) (?:all|"
    r"every|each|\d)|"
    r"\b(?:validation|evaluation|benchmarks?|scores?)\b[^\n;.\d]{0,24}\s?=\s?0(?:\.0+)?\b(?!\.?\d)|"
    r"\b(?:wer|cer|error rate)\b[^\n;.\d]{0,16}(?:100(?:\.0+)?\s?%|1\.0+\b|100\.0+\b)|"
    r"\bacc(?:uracy)?\b[^\n;.\d]{0,16}\b(?:never|not) (?:\w+ )?(?:above|over|beyond|exceeds?|higher than)\b",
    re.IGNORECASE,
)
_DROPPED = lazy_regex(
    r"\b(?:acc(?:uracy)?|bleu|f1|m?ap(?:50)?|m?iou|dice|recall|precision|success rate|psnr|ssim)\b[^\n;.\d]{0,24}"
    rf"\bfrom {_NUMBER}\s?%? to {_NUMBER}",
    re.IGNORECASE,
)
_BELOW_MEAN = lazy_regex(
    r"\br(?:2|\^2|\u00b2|[- ]?squared)\b\W{0,3}(?:score )?(?:is|was|of|=|:)\W{0,3}-\s?[1-9]", re.IGNORECASE
)
_MEASURED = r"\b(?:acc(?:uracy)?|results?|predictions?|performance|m?ap|m?iou|bleu|f1|dice|scores?|quality)\b"
_WORSE = lazy_regex(
    r"(?<!little )(?<!slightly )(?<!bit )\b(?:worse|lower|far (?:from|below)|below|cannot|can't|can not|could not|"
    r"unable to|fail(?:s|ed)? to|not able to)\b[^.;\n]{0,40}"
    r"\b(?:papers?|reported|official|original (?:code|results?|paper)|published|readme|reproduc\w+)\b",
    re.IGNORECASE,
)
_POOR = lazy_regex(
    rf"{_MEASURED}[^.;\n]{{0,20}}\b(?:is|are|was|were|looks?) (?:\w+ )?(?:terrible|horrible|awful|useless|"
    r"very (?:bad|poor)|bad\b(?! (?:when|if)))|"
    rf"{_MEASURED}[^.;\n]{{0,30}}\b(?:totally|completely|very|entirely) different (?:between|in|from|when|after)\b|"
    rf"{_MEASURED}[^.;\n]{{0,30}}\bworse than (?:with|when|on|in|using) (?:1|one|a single|single)\b|"
    r"\b(?:much|far|significantly|way|considerably) (?:lower|worse) (?:acc(?:uracy)?|results?|performance|m?ap|m?iou|"
    r"bleu|f1|dice|scores?) than\b|"
    r"\bacc(?:uracy)?\b[^.;\n\d]{0,20}\b(?:larger|greater|higher|more|bigger|above|over) (?:than )?100 ?%|"
    r"\b(?:m?iou|dice)\b(?! (?:thr|loss|score thr))[^.;\n\d]{0,20}\b(?:larger|greater|higher|more|bigger|above) "
    r"(?:than )?1\b(?!\.\d)|"
    rf"\bonly (?:get|got|reach|achiev|obtain)\w*[^.;\n]{{0,30}}{_NUMBER}[^;\n]{{0,40}}\b(?:paper|reported|reports|"
    r"official|original|claim\w*)\b",
    re.IGNORECASE,
)
_IMPOSSIBLE = lazy_regex(
    r"\b(?:precision|recall|f1|ssim|m?iou|dice|auc|auroc)\b(?:\s?[:=>]|\s(?:is|of|was))?\s{0,2}"
    r"(?:1\.\d*[1-9]\d*|[2-9]\.\d{2,})(?!\s?%|\d)",
    re.IGNORECASE,
)
_COUNTED_ON = lazy_regex(
    r"(?<!than )\bI(?: had|'d| would have)? expected (?!it|the|to|that|this)|# (?:expected|should be) ", re.IGNORECASE
)
_FEW_ROWS = lazy_regex(r"\b(?:examples?|shots?|images|samples) (?:each|per)\b|\bfew[- ]shot", re.IGNORECASE)
_GOT_WORSE = lazy_regex(
    r"(?<!no )(?<!not )(?<!little )(?<!slightly )(?<!bit )(?<!or )(?<!somewhat )\bworse\b(?! or|[^.\n]{0,90}\?)",
    re.IGNORECASE,
)
_EVALUATED = lazy_regex(r"^(?:e?val|dev|test|infer).*")
_ON_A_SIDE = lazy_regex(
    r"\b(?P<side>train(?:ing)?|e?val\w*|dev|test\w*|infer\w*|fp32|bf16|fp16|amp|teacher|student|before|after|nach\w*|danach)\b"
    rf"[^.;,|\n\d]{{0,24}}?(?<![\w.-])(?P<number>{_NUMBER[1:-1]})(?![\w.]|,\d|\s?(?:epochs?|steps?|k\b|m\b|rows|samples|images|gpus?|schritte\w*))",
    re.IGNORECASE,
)
GULF, COMPARABLE = 3.0, 1e3
"""Ratio of one quantity on two sides that no overfitting explains; farther apart are two quantities."""
_TIME = lazy_regex(r"\b(?:time|eta|hours?|minutes?|seconds?|days?|finish\w*)\b", re.IGNORECASE)
_HOPED_FOR = lazy_regex(rf"\bexpected\b(?: (?:\w+ ){{0,4}}\w+)?(?:\s?[:=]\s+~?-?|\s?~\s?){_NUMBER}", re.IGNORECASE)
_SCORE = (
    r"\b(?:loss|acc(?:uracy)?|psnr|bleu|f1|m?ap|m?iou|dice|recall|precision|scores?|metrics?|results?|perplexity|ppl|"
    r"wer|fid|reward)\b"
)
_OF_A_SCORE = lazy_regex(rf"{_SCORE}|\d\s?(?:db\b|%)|\b(?:papers?|readme|official|original|baseline)\b", re.IGNORECASE)
"""Without one of these an expected number is any program's: `Expected: 10`."""
_IN_ITS_PLACE = lazy_regex(
    rf"{_SCORE}[^;\n]{{0,40}}\b"
    rf"(?:instead of|rather than|(?:should|ought to|supposed to) (?:be|reach)) (?:\w+ ){{0,2}}~?{_NUMBER}",
    re.IGNORECASE,
)
"""The same phrases about settings are not complaints."""
_ERROR = lazy_regex(r"\w*(?:Error|Exception|Warning)\b")
_SOLVED = lazy_regex(r"\b(?:it|now|this|that|all) works\b|\bworks (?:now|fine|well)\b|\bsolved\b", re.IGNORECASE)
_SIDES = lazy_regex(
    r"\b(train|eval|test|val|valid|validation|inference)(?:ing|uation)?\b[^;\n]{0,40}?\bacc(?:uracy)?\W{1,3}"
    rf"(?:(?:is|of|was) )?{_NUMBER}",
    re.IGNORECASE,
)
_AGAINST = lazy_regex(
    r"\b(\d+(?:\.\d+)?)\s?%\s?(?:vs\.?|versus|against|compared to)\s(\d+(?:\.\d+)?)\s?%", re.IGNORECASE
)
_BOTH_SIDES = lazy_regex(r"\btrain.*\b(?:test|val|eval)|\b(?:test|val|eval).*\btrain", re.IGNORECASE)
_PLAIN = lazy_regex(
    r"\b(acc(?:uracy)?|bleu|rouge-?[12l]?|f1|m?ap(?:50)?|m?iou|dice|recall|precision|auc|auroc|[wc]er)\b"
    r"(?:\s?[:=(]|\s(?:is|of|was|at))?\s{0,2}(0?\.\d+|\d+(?:\.\d+)?)(?![\d.]*\s?(?:->|\u2192|(?!(?:after|on|at|for|in|as|and|from|throughout)\b)[a-df-z*/+x]))\s?(%?)",
    re.IGNORECASE,
)
"""A score and its number, without a word between that judges it."""
_AT_FIRST = lazy_regex(
    r"\b(?:first|1st|start\w*|initial\w*|epoch [01]|step \d{1,3}|rare|random|chance|threshold|class)\b", re.IGNORECASE
)
_SET_AGAINST = lazy_regex(
    rf"(?<![\w.]){_NUMBER}\s?%?(?: \w+){{0,3}}[\s,;(]{{1,2}}"
    r"(?:vs\.?|versus|against|instead of|rather than|compared (?:to|with)|expected|should be|"
    r"(?:the )?paper(?: [a-z]+)?|usual(?:ly)?|normal(?:ly)?|otherwise|originally|before(?: it was)?|instead)"
    rf"[\s:(]{{1,2}}(?:[a-z]\w* ){{0,3}}[~(]?{_NUMBER}(?![\w.])",
    re.IGNORECASE,
)
APART = 1.3
"""Ratio of two numbers of one quantity that are set against each other."""
NO_PICTURE = 16.0
"""Decibels: below this, nothing of an image is visible."""
NOTHING = 0.02
"""A fraction this low is reached by guessing."""
GUESSES = (0.1, 10.0)
"""Accuracies of guessing among ten; a coin flip's half may be a hard task."""


def tells_low_score(text: str) -> bool:
    """Whether a score is reported that no trained model has."""
    for name, number in _TOLD.findall(text):
        value = float(number)
        if name.lower() == "psnr":
            if value <= NO_PICTURE:
                return True
        elif value <= NOTHING or (name.lower().startswith("acc") and value in GUESSES):
            return True
    if any(float(after) <= 0.4 * float(before) for before, after in _DROPPED.findall(text)):
        return True
    plain = [_is_hopeless(name.lower(), float(number), percent) for name, number, percent in _PLAIN.findall(text)]
    if plain and all(plain) and not _AT_FIRST.search(text):
        return True
    return _ZERO.search(text) is not None or _BELOW_MEAN.search(text) is not None or _tells_gulf(text)


def _is_hopeless(name: str, value: float, percent: str) -> bool:
    """Whether a score is what guessing or giving no answer gets."""
    share = value / 100 if percent or value > 1 else value
    if name in ("wer", "cer"):
        return share >= 0.95
    if name in ("auc", "auroc"):
        return 0.49 <= share <= 0.505
    if name.startswith("acc") and share == 0.1:
        return True
    return share <= NOTHING if name == "bleu" or value != 1 else False


def _tells_gulf(text: str) -> bool:
    """Whether a sentence sets a good training accuracy against one of an evaluation that is far below it."""
    if (against := _AGAINST.search(text)) and _BOTH_SIDES.search(text):
        return min(map(float, against.groups())) <= 0.25 * max(map(float, against.groups()))
    found = [(side.lower(), float(number)) for side, number in _SIDES.findall(text)]
    trained = [number for side, number in found if side.startswith("train")]
    asked = [number for side, number in found if not side.startswith("train")]
    return (
        bool(trained and asked)
        and min(asked) <= 0.11 * max(trained)
        and (max(trained) >= 80 or 0.8 <= max(trained) <= 1)
    )


def tells_what_was_hoped_for(text: str) -> bool:
    """Whether an expected number is reported that was not reached."""
    if _ERROR.search(text) or _TIME.search(text) or _SOLVED.search(text):
        return False
    hoped_for = _HOPED_FOR.search(text)
    if hoped_for and (_OF_A_SCORE.search(text) or _is_missed(text[: hoped_for.start()], float(hoped_for[1]))):
        return True
    counted = re.search(rf"\(expected:? (?:\w+ ){{0,2}}~?{_NUMBER}", text)
    if counted and _is_missed(text[: counted.start()], float(counted[1])):
        return True
    if _OF_A_SCORE.search(text) and not _FEW_ROWS.search(text) and _differs_by_side(text):
        return True
    if _OF_A_SCORE.search(text) and any(_are_apart(*map(float, pair)) for pair in _SET_AGAINST.findall(text)):
        return True
    return any(pattern.search(text) for pattern in (_IN_ITS_PLACE, _WORSE, _POOR, _IMPOSSIBLE, _COUNTED_ON, _GOT_WORSE))


def _differs_by_side(text: str) -> bool:
    """Whether a sentence about a score has numbers of two sides that are of different sizes."""
    found = [
        (_EVALUATED.sub("eval", each["side"].lower()), float(each["number"])) for each in _ON_A_SIDE.finditer(text)
    ]
    sides = {side: number for side, number in found if number > 0}
    numbers = sides.values()
    mixed = len(sides) >= 2 and min(numbers) <= 1 and max(numbers) > 20  # a loss beside a score in percent
    return len(sides) >= 2 and not mixed and GULF <= max(numbers) / min(numbers) <= COMPARABLE


def _are_apart(one: float, other: float) -> bool:
    return max(one, other) >= APART * min(one, other)


def _is_missed(before: str, expected: float) -> bool:
    """Whether numbers stand before an expected one, and none is it: `Bias: -0.3301 (expected: 0)`."""
    reached = [float(number) for number in re.findall(rf"(?<![\w.]){_NUMBER}", before)]
    return bool(reached) and not any(math.isclose(abs(each), expected, rel_tol=0.1) for each in reached)
