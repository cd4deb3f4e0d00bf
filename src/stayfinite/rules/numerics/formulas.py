"""Formulas that have an edge: which operators, how they look in code, and how torch names them in backward."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stayfinite.rules.facts import Facts

SINGULAR = {
    "pow": r"Pow|TensorPow",
    "log": r"Log|Log2|Log10|Log1P|Logit|Xlogy|XlogyBackward|LogAddExp",
    "sqrt": r"Sqrt|Rsqrt",
    "division": r"Div|Reciprocal|TrueDivide|Remainder",
    "norm": r"\w*Norm0?|LinalgVectorNorm|Cdist|EuclideanDist|PairwiseDistance|Dist|CosineSimilarity|FrobeniusNorm",
    "inverse trigonometry": r"Acos|Asin|Acosh|Atanh|Atan2|Angle",
    "spread": r"Std|Var|StdMean|VarMean",
    "matrix decomposition": r"\w*(?:Svd|Eigh?|Inverse|Inv|Solve|Cholesky)\w*|SymEig|Qr|LinalgQr\w*|\w*Det|Logdet",
    "cross entropy of probabilities": r"BinaryCrossEntropy|NllLoss\w*|KlDiv",
    "gamma": r"Lgamma|Digamma|Polygamma",
    "product": r"Prod|Cumprod",
}
"""Operators whose derivative is not finite somewhere, by the stem of their backward's name."""

_NOT_A_VECTOR_NORM = re.compile(r"(?:Layer|Batch|Group|Instance|Rms|RMS|Cudnn\w*|Native\w*)Norm", re.IGNORECASE)
_ANOMALY = re.compile(r"(?:Function '?|Error detected in )(\w+?)Backward\w*'?", re.IGNORECASE)
_LIBRARY = r"(?:torch\.|np\.|numpy\.|math\.|K\.|tf\.(?:math\.)?|jnp\.|F\.)"
_CALL = re.compile(
    rf"{_LIBRARY}(?:log|log2|log10|sqrt|rsqrt|pow|acos|arccos|asin|reciprocal|norm|linalg\.(?:norm|inv|svd|eigh|"
    rf"cholesky|solve)|cdist|div|std|atan2|inverse|svd)\(|"
    r"(?<![\w.])(?:log2?|sqrt|pow|acos|arccos|norm)\(|\.(?:log2?|sqrt|rsqrt|acos|std|norm|reciprocal)\((?:dim=[^)]*|"
    r"-?\d?)?\)|\*\*\s*(?:0\.5|\(?-|\(?\s*1\.?0?\s*/\s*\w)|/\s*\(?(?:torch\.sum\()?\w*(?:mask|weight|valid|num_?(?:pos|neigh)|count|denom|degree|deg|union|std|sigma|norm)\w*|"
    r"\[[^\]]*(?:==|[<>]|mask|valid|label|pos)[^\]]*\]\s*\.mean\(\)|/\s*\(?[^/+]{0,30}\.sum\([^)]*\)(?!\s*\+\s*\w*(?:eps|smooth))|"
    r"\.pow\((?:0\.5|-|\w+[^\d)]*\))",
    re.IGNORECASE,
)
_GUARD = re.compile(
    r"\+\s*(?:\w*eps\w*|1e-[1-7]\b|\w*tiny|\w*smooth)|clamp|clip\(|max\(.{0,30}(?:eps|1e-[1-7])|log1p|logsumexp|"
    r"nan_to_num",
    re.IGNORECASE,
)
_LOG_CALL_OF_A_LOGGER = re.compile(
    r"\b(?:wandb|self|logger|logging|writer|trainer|mlflow|run|accelerator)\.log\(", re.IGNORECASE
)
TOO_SMALL = re.compile(
    r"\b1(?:\.0?)?\s*-\s*(?:1e-0?(?:[89]|[1-9]\d)\b|\w*eps\w*\s*\(?1e-(?:[89]|1\d))|"
    r"\b\w*eps(?:ilon)?\w*\W{1,3}\s*1e-(?:1[0-9]|[2-9]\d)\b|[+,]\s*1e-(?:1[0-9]|[2-9]\d)\b",
    re.IGNORECASE,
)
"""A guard that rounds away: fp32 has 1.2e-7 next to 1, and a gradient of 1e-15's reciprocal is 1e15."""


def anomaly(facts: Facts) -> tuple[str, str, str] | None:
    """``(operator, text, where)`` of the backward function that anomaly detection blames."""
    for message in facts.all_said(r"returned nan values|error detected in \w+backward"):
        found = _ANOMALY.search(message.text)
        if found:
            return found.group(1), message.text.strip(), message.where
    return None


def kind_of(operator: str) -> str | None:
    """What sort of edge an operator has, by its backward's stem; None when it has none."""
    if _NOT_A_VECTOR_NORM.search(operator):
        return None
    for kind, stems in SINGULAR.items():
        if re.fullmatch(rf"(?:{stems})\d*", operator, re.IGNORECASE):
            return kind
    return None


def unguarded(facts: Facts) -> Iterator[tuple[str, str]]:
    """``(where, text)`` of settings and lines of code that call such an operator with nothing in between."""
    for where, text in code_lines(facts):
        if _CALL.search(text) and not _GUARD.search(text) and not _LOG_CALL_OF_A_LOGGER.search(text):
            yield where, text.strip()


def code_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Settings and notes, which is where lines of code and formulas end up, then the lines of code in tracebacks."""
    yield from facts.settings.texts()
    for message in facts.messages:
        if re.match(r"\s{2,}\S", message.text) or re.search(r"\w\(.*\)", message.text):
            yield message.where, message.text
