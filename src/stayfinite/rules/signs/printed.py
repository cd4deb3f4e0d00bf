"""NaN and infinity in lines that no reader took for a measurement: `13 nan`, `tensor([nan, ...`, `logits max inf`."""

from __future__ import annotations

import re

_VALUE = r"(?<![\w.%/-])(?:-?nan|\+?inf(?:inity)?)\b(?![\w-]|[_/.]\w)"
_NUMBERS = r"[-+\d.eE,;:|\s]|nan|inf"

_PRINTED = (
    # tensor(nan, device=...), tensor([[1.2, nan, ...: the first lines of it, or its last.
    re.compile(rf"\b(?:tensor|array)\([^()]{{0,400}}?{_VALUE}", re.IGNORECASE),
    re.compile(rf"\[(?:{_NUMBERS}|\.\.\.)*{_VALUE}(?:{_NUMBERS}|\.\.\.|\])*(?:$|\]|,? ?\w+=)", re.IGNORECASE),
    # Columns without names: `13 nan`, `100, 0.01, nan`.
    re.compile(rf"^\s*\d(?:{_NUMBERS})*{_VALUE}(?:{_NUMBERS})*$", re.IGNORECASE),
    re.compile(r"^\s*-?nan\s*$", re.IGNORECASE),
    # A name and its value: alone in its line any name, else one of a number that training makes.
    re.compile(rf"^\s*\w{{1,24}}\s*[:=]\s*{_VALUE}\s*$", re.IGNORECASE),
    re.compile(
        r"(?:loss|cost|norm|grad|activation|logit|output|hidden|embed|feature|weight|param|pred|prob|score|reward|return|"
        r"value|accuracy|\bacc|auc|bleu|rouge|\bf1|\bppl|perplexity|elbo|\bkld?\b|entropy|energy|error|\berr\b|mean|std|var|"
        rf"\bmax|\babs|sum|total|mse|mae|psnr|iou|dice|\bmap)\w*\b[^.;\n]{{0,40}}?(?:[\s:=(\[]){_VALUE}",
        re.IGNORECASE,
    ),
)
_REFUSED = re.compile(r"^\s*assert\b.{0,80}(?:['\"][^'\"]{0,60}\bnan\b|is_?nan\(|isfinite\()", re.IGNORECASE)
"""An assertion in a log is one that failed."""

_OVER_NOTHING = re.compile(
    r"\b(?:m?ap(?:[_@]?\d+)?|average precision|auc|auroc|precision|recall|f1|m?iou|dice)\b[^a-z\n]{0,12}nan",
    re.IGNORECASE,
)
"""A score over no example at all."""

_SPOKEN_OF = re.compile(
    r"\b(?:no|not|never|without|isn't|aren't|if|when|whether|unless|until|skip\w*|check\w*|assert|ignore\w*|filter\w*|"
    r"ignor\w+|episode\w*|ep_?rew\w*|ep_?len\w*|replac\w+|remov\w+|drop\w*|fill\w*|nan_to_num|isnan|isinf|isfinite|detect_anomaly)\b|==|!=|"
    r"\b(?:best|improved from|previous|patience|initial|init|threshold|limit|lowest|highest|clip\w*|min_\w+|max_\w+)\b"
    r"[^.;\n]{0,30}\binf",
    re.IGNORECASE,
)
"""Somebody speaks of NaN, or a best value that was not found yet is printed."""


def prints_not_finite(text: str) -> bool:
    """Whether a line prints a value that is NaN or infinite; -inf alone is what masks are made of."""
    if _REFUSED.search(text):
        return True
    return (
        not _SPOKEN_OF.search(text)
        and not _OVER_NOTHING.search(text)
        and any(pattern.search(text) for pattern in _PRINTED)
    )
