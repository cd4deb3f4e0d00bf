"""NaN and infinity in lines that are not measurements.

Printed as values: `13 nan`, `tensor([nan, ...`, `logits max inf`. Or in words: `loss became infinite or NaN`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message

_VALUE = r"(?<![\w.%/-])(?:-?nan|\+?inf(?:inity)?)\b(?![\w-]|[_/.]\w)"
_NUMBERS = r"[-+\d.eE,;:|\s]|nan|inf"

_PRINTED = (
    # tensor(nan, device=...), tensor([[1.2, nan, ...: its first or last lines.
    lazy_regex(rf"\b(?:tensor|array)\([^()]{{0,400}}?{_VALUE}", re.IGNORECASE),
    lazy_regex(rf"\[(?:{_NUMBERS}|\.\.\.)*{_VALUE}(?:{_NUMBERS}|\.\.\.|\])*(?:$|\]|,? ?\w+=)", re.IGNORECASE),
    # A tuple that is all of its line; elsewhere `(0, inf)` is a range.
    lazy_regex(rf"(?:^|[=:])\s*\((?=[^()]*,)(?:{_NUMBERS})*{_VALUE}(?:{_NUMBERS})*\)\s*$", re.IGNORECASE),
    # Columns without names: `13 nan`, `100, 0.01, nan`, `0/299 0.48G nan nan`.
    lazy_regex(
        rf"^[\s|]*(?:\[\s*\d+%?\s*\]\s*)?(?:\d(?:{_NUMBERS}|[/%GMK])*{_VALUE}|{_VALUE}[\s,;|]+[-\d])(?:{_NUMBERS})*$",
        re.IGNORECASE,
    ),
    # numpy and torch name the operation that made the NaN; a division is often one of a score over no rows.
    lazy_regex(
        r"\binvalid value encountered in (?:log\w*|sqrt|exp|multiply|subtract|add|power|matmul|dot|reduce)\b",
        re.IGNORECASE,
    ),
    lazy_regex(r"^\s*-?nan\s*$|(?<![\w-])(?:nan[\s,;]+){2,}nan\b", re.IGNORECASE),
    # A name and its value: any name if alone on the line, else one of a training quantity.
    lazy_regex(rf"^\s*\w{{1,24}}\s*[:=\uff1a]\s*{_VALUE}\s*$", re.IGNORECASE),
    lazy_regex(
        r"(?:loss|cost|norm|grad|activation|logit|output|hidden|embed|feature|weight|param|pred|prob|score|reward|"
        r"return|"
        r"value|accuracy|\bacc|auc|bleu|rouge|\bf1|\bppl|perplexity|elbo|\bkld?\b|entropy|energy|error|\berr\b|mean|"
        r"std|var|"
        rf"\bmax|\babs|sum|total|mse|mae|psnr|iou|dice|\bmap)\w*\b[^.;\n]{{0,40}}?(?:[\s:=(\[]){_VALUE}",
        re.IGNORECASE,
    ),
)
_REFUSED = lazy_regex(r"^\s*assert\b.{0,80}(?:['\"][^'\"]{0,60}\bnan\b|is_?nan\(|isfinite\()", re.IGNORECASE)
"""An assertion in a log has failed."""

_OVER_NOTHING = lazy_regex(
    r"\b(?:m?ap(?:[_@]?\d+)?|average precision|auc|auroc|precision|recall|f1|m?iou|dice)\b[^a-z\n]{0,12}nan",
    re.IGNORECASE,
)
"""A score over no examples."""

_NONE = r"no|kein\w*|ohne|aucun\w*|sans|sin|ning\w+|nessun\w*|nenhum\w*|\u0431\u0435\u0437"
_SPOKEN_OF = lazy_regex(
    rf"\b(?:{_NONE}|not|never|without|isn't|aren't|if|when|whether|unless|until|skip\w*|check\w*|assert|ignore\w*|"
    r"filter\w*|"
    r"prevent\w*|ignor\w+|episode\w*|ep_?rew\w*|ep_?len\w*|replac\w+|remov\w+|drop\w*|fill\w*|nan_to_num|isnan|isinf|isfinite|"
    r"detect_anomaly)\b|==|!=|"
    r"\b(?:best|improved from|previous|patience|initial|init|threshold|limit|lowest|highest|clip\w*|min_\w+|max_\w+)\b"
    r"[^.;\n]{0,30}\binf",
    re.IGNORECASE,
)
"""A mention of NaN, or an initial best value."""


_REMEMBERED = 2_048
"""Lines whose answer is kept: many rules ask of the same ones."""


@lru_cache(_REMEMBERED)
def prints_not_finite(text: str) -> bool:
    """Whether a line prints NaN or infinity; -inf alone is usual in masks."""
    if _REFUSED.search(text):
        return True
    return (
        not _SPOKEN_OF.search(text)
        and not _OVER_NOTHING.search(text)
        and any(pattern.search(text) for pattern in _PRINTED)
    )


_NUMBER = lazy_regex(rf"{_VALUE}|[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?", re.IGNORECASE)
_LOST_VALUE = lazy_regex(_VALUE, re.IGNORECASE)


def turned_not_finite(messages: Sequence[Message]) -> Message | None:
    """A line in which NaN or infinity stands where the same line had a number before, and never after."""
    lost: dict[str, Message] = {}
    for each in messages:
        spoken = (
            _LOST_VALUE.search(each.text) is None or _SPOKEN_OF.search(each.text) or _OVER_NOTHING.search(each.text)
        )
        if not spoken:
            lost.setdefault(_shape(each.text), each)
    finite = [(_shape(each.text), each) for each in messages if not _LOST_VALUE.search(each.text)] if lost else []
    for shape, each in lost.items():
        last = max(each.line, each.last_line)
        alike = [one for of, one in finite if of == shape]
        if alike and alike[0].line < each.line and all(max(one.line, one.last_line) < last for one in alike):
            return each
    return None


def without_empty_statistics(messages: Sequence[Message]) -> list[Message]:
    """The messages without lines whose NaN was a mean of nothing yet: the same line later has a number for good."""
    finite = (each for each in messages if not _LOST_VALUE.search(each.text) and _NAMES.search(each.text))
    last = {_shape(each.text): max(each.line, each.last_line) for each in finite}
    return [
        each
        for each in messages
        if not _LOST_VALUE.search(each.text) or last.get(_shape(each.text), 0) <= max(each.line, each.last_line)
    ]


_NAMES = lazy_regex(r"\b(?!tensor|array|device|dtype|grad_fn)[^\W\d_]{3,}", re.IGNORECASE)
"""Two tensors need not be of the same thing."""


def _shape(text: str) -> str:
    """A line with its numbers left open."""
    return " ".join(_NUMBER.sub("#", text).split())


_LOST = r"(?:nans?|inf(?:s|inity|inite)?|not a number|non-?finite)"
_LOSS = r"(?:(?:\w{1,16}_)?loss(?:es|tensor|\w*)?|cost|objective|perplexity|ppl|elbo|kld?|nll|energy|err(?:or)?)"
_MODEL = (
    r"(?:weights?|param(?:eter)?s?|grad(?:ient)?s?(?:[_ ]norms?)?|logits?|outputs?|preds?|predictions?|activations?|"
    r"hidden(?:[_ ]states?)?|embeddings?|features?|values?|rewards?|tensor|norm|results?)"
)
_LOSS_IS_LOST = lazy_regex(
    rf"\b(?:{_LOSS}|weights?)\b[^.;\n]{{0,20}}?\b(?:is|was|are|became|becomes?|turn(?:s|ed)?|has)\W{{0,3}}"
    rf"(?:\w+ (?:or )?){{0,2}}{_LOST}\b|"
    rf"\b(?:cost|weights?) {_LOST}\b|\b{_LOSS}\s?\(\s?=?\s?{_LOST}\s?\)|"
    rf"\b{_LOST} (?:in |for |encountered in )?(?:the )?{_LOSS}\b|"
    rf"\b\w+\b[^.;\n]{{0,30}}\b{_LOST}\b[^.;\n]{{0,20}}\b(?:stop|abort|terminat|exit|diverg|quit)|"
    r"\binvalid loss, terminat|\btraining has diverged",
    re.IGNORECASE,
)
_LOST_IN_WORDS = lazy_regex(
    rf"\b(?:{_LOSS}|{_MODEL})\b(?:[^.;\n]|\.(?=\d)){{0,40}}?(?<![\w/.])-?{_LOST}\b|"
    r"\b(?:explod\w+|diverg\w+|blows? up|jumps?|shoots?|overflows?) to \W?inf(?:inity)?\b|"
    rf"\b{_LOST}\W{{1,3}}(?:or \w+ )?(?:in |for )?(?:the |its )?(?:{_LOSS}|{_MODEL})\b|"
    r"\b(?:found|detected|encounter\w*|contain\w*|return(?:s|ed)|produc\w*|gives?|got|gets?|getting|becomes?|became|"
    r"turn(?:s|ed|ing)?|goes|went|going|too many|"
    rf"number of|reached|all|tensor had)\b[^.;\n]{{0,24}}\b{_LOST}\b|"
    rf"(?<![\w.%/-])-?{_LOST}\b['`\"]*s? (?:com(?:e|es|ing)|came|appear\w*|show(?:s|ed)? up|pop(?:s|ped)? up|"
    rf"occur\w*|start(?:s|ed)|spread\w*)\b|"
    rf"\bnans? (?:after|at|from|during|since|in|for|on|within) (?:the |a |about |around |only |almost )?"
    rf"(?:\d|every|each|all|"
    rf"epoch|step|iter|first|"
    rf"second|few|start|begin|train)|"
    r"\b(?:crash\w*|fail\w*|end(?:s|ed)|stop\w*|dies|died|diverg\w*) (?:with|in|to|at|because of|"
    r"due to) (?:a )?nans?\b|"
    rf"\b{_LOST} (?:detected|encountered|found|or {_LOST})|-nan\(ind\)|1\.#(?:QNAN|IND|INF)|"
    r"\b(?:is_?nan|is_?inf|has_nan|any_nan|nan_any)\b.{0,40}[:=>]\s*(?:tensor\()?True|"
    r"\b(?:is_?finite|all_finite)\b.{0,40}[:=>]\s*(?:tensor\()?False|"
    r"training has diverged|loss explod|\binvalid loss, terminat|\binvalid values\b|"
    r"probability tensor contains either|encountering probability entry < 0|(?:invalid|nan) multinomial",
    re.IGNORECASE,
)
_DENIED = lazy_regex(
    rf"\b(?:{_NONE}|not|never|without|free of|isn't|aren't|(?<!even )if|when(?:ever)?(?= (?:(?:the|a|an|any|"
    rf"your|its|this|training|val\w*|its) ){0, 2}(?:loss|grad|nan|inf|weight|output|value))|"
    r"whether|unless|zero|0) (?!a number)"
    r"[^.;\n]{0,60}(?:nan|inf)|"
    r"\b(?:best|lowest|initial|min(?:imum)?|improved from)\b[^.;\n]{0,24}\binf|"
    r"\bepisod\w*\b[^.;\n]{0,50}\bnan\b|\bnan\b[^.;\n]{0,50}\bepisod|"
    r"\b(?:skip|ignore|filter|check|detect_anomaly|nan_to_num)\w*\b|nan_inf_filter|"
    r"\b(?:nans?|infs?)\b(?: iterations)?\W{0,5}(?:false|0\b(?!\.)|none\b|no\b)",
    re.IGNORECASE,
)
"""`stops if the loss is NaN`, `no NaN`, `contains nan: False`."""


_PLAIN_NAN = lazy_regex(r"(?<![\w.%/-])nans?\b(?![\w-]|[_/.]\w)", re.IGNORECASE)
_NAN_ELSEWHERE = lazy_regex(
    rf"\b(?:{_NONE}|not|never|nothing|without|zero|0|any|isn't|aren't|fix(?:ed|es)?|solv\w+|avoid\w*|"
    r"prevent\w*|used to|replac\w+|remov\w+|drop(?:s|ped)?|fill\w*|guard\w*|expected|normal|harmless|absent|region|"
    r"episode\w*|ep_?\w+|best|precision|recall|auc|m?ap|f1|m?iou|dice|[wc]er\w*|class\w*|if|when|whether|unless|until|skip\w*|"
    r"check\w*|assert|ignor\w*|filter\w*|nan_to_num|isnan|detect_anomaly|should|would|could|may|might)\b|==|!=|\||"
    r"\?\s*$",
    re.IGNORECASE,
)
"""NaN that is denied, asked about or handled, and that of a score or of what has no members."""
_WORDS = lazy_regex(r"(?<![\w.=/])[^\W\d_]{2,}(?![\w=(/])")
SPOKEN = 4
"""Words that make a sentence."""


def speaks_of_nan(sentence: str) -> bool:
    """Whether a person's sentence has NaN in it, and it is neither denied nor that of a score."""
    plain = _PLAIN_NAN.search(sentence) is not None and len(_WORDS.findall(sentence)) >= SPOKEN
    return plain and _NAN_ELSEWHERE.search(sentence) is None


@lru_cache(_REMEMBERED)
def says_not_finite(text: str, *, of_loss: bool = False) -> bool:
    """Whether a line reports a non-finite training quantity; ``of_loss``: explicitly the loss or the weights."""
    said = _LOSS_IS_LOST if of_loss else _LOST_IN_WORDS
    return said.search(text) is not None and not _DENIED.search(text)
