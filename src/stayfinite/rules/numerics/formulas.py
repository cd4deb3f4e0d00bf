"""Operators with singularities: their effect, where code uses them, and whether the input is guarded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.signs.witness import not_finite

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
"""Operators with a non-finite derivative somewhere, by the stem of their backward's name."""

AT_THE_EDGE = {
    "pow": "a fractional power has an infinite gradient at 0, and is NaN below 0",
    "log": "the logarithm of 0 is infinite, and so is its gradient",
    "sqrt": "a root has an infinite gradient at 0",
    "division": "the divisor may be 0",
    "norm": "the gradient of norm is undefined at 0",
    "inverse trigonometry": "its gradient is infinite at -1 and 1",
    "spread": "a standard deviation has no gradient where all values are equal",
    "matrix decomposition": "its gradient is infinite where two singular values are equal or one is 0",
    "cross entropy of probabilities": "the logarithm of a probability of 0 is infinite",
    "gamma": "it is infinite at 0",
    "product": "its gradient divides by each factor",
}
"""What each kind of operator does at its singularity."""

_NOT_A_VECTOR_NORM = lazy_regex(r"(?:Layer|Batch|Group|Instance|Rms|RMS|Cudnn\w*|Native\w*)Norm", re.IGNORECASE)
_ANOMALY = lazy_regex(r"(?:Function '?|Error detected in )(\w+?)Backward\w*'?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Edge:
    """A formula in the user's code that is non-finite somewhere."""

    kind: str
    """A key of `AT_THE_EDGE`."""
    what: str
    """The formula in a few words, without an article."""
    where: str
    text: str
    near: bool
    """Ordinary values reach the singularity: a softmax or an error reaches 0, a mask may be empty."""


_LIB = r"(?:\b(?:torch|np|numpy|math|K|tf|tf\.math|tf\.linalg|jnp|F|backend)\.(?:linalg\.)?)"
_ANY = r"(?:(?<![\w.])|(?<=torch\.)|(?<=np\.)|(?<=numpy\.)|(?<=math\.)|(?<=\bK\.)|(?<=tf\.)|(?<=jnp\.)|(?<=linalg\.))"
_SUM = r"(?:reduce_)?sum\("
_SMALL_NAMES = (
    r"\w*(?:union|denom\w*|count|n_?valid|num_?(?:pos|neg|valid|neigh|tokens)\w*|degree|deg|mask\w*|weights?_sum|"
    r"total_weight|area\w*|cardinality|std\w*|sigma\w*|var|variance|scale|range|norms?|dist(?:ance)?s?)\b"
)
_EDGES: tuple[tuple[str, str, bool, str], ...] = (
    ("log", "logarithm of a softmax or sigmoid", True,
     (rf"{_ANY}log2?\((?:[^()]|\([^()]*\)){{0,20}}?\b(?:softmax|sigmoid)\(|(?<!log_)\b(?:softmax|"
      rf"sigmoid)\([^()]*\)\.log\(|"
      rf"{_ANY}log\(\s*(?:1\.?0?\s*-\s*)?(?:\w+\.)*\w*(?:softmax|sigmoid)\w*\(")),
    ("log", "Poisson loss on the log of its input", True, r"\blog_input\s*=\s*False"),
    ("log", "logarithm of a difference", True,
     (rf"{_ANY}log\(\s*(?:(?:torch|np|tf|K|math)\.)?exp\([^()]*\)\s*-\s*1|{_ANY}log\(\s*(?:(?:torch|np|tf|K|"
      rf"math)\.)?expm1\(")),
    ("inverse trigonometry", "inverse cosine or sine", True,
     r"(?<![\w])(?:arccos|acos|arcsin|asin|acosh|arccosh|atanh|arctanh)_?\("),
    ("sqrt", "sqrt of a squared sum, which can be 0", True,
     (rf"{_ANY}sqrt_?\(.{{0,60}}(?:mse|square|\*\*\s*2|\bpow\(|\^2|mean|sum|var)|"
      r"(?:mse\w*|square\w*|mean|sum)\([^()]*(?:\([^()]*\)[^()]*)*\)\s*(?:\.sqrt\(\)|\*\*\s*(?:0?\.5|\(?1\.?/2))")),
    ("spread", "division by a standard deviation", True,
     r"/\s*\(?\s*(?:(?:torch|np|tf|K)\.)?(?:math\.)?(?:\w+\.)*(?:std|reduce_std)\w*\s*\("),
    ("norm", "division by a norm", True, rf"/\s*\(?\s*(?:{_LIB}?norm\(|[\w.\[\]]+\.norm\()"),
    ("division", "division by a sum", True,
     (rf"/\s*\(*\s*(?:{_LIB}?{_SUM}|\w[\w.\[\]]*\.sum\(|\([^()]*\)\.sum\()|/\s*\([^/]{{0,80}}\.sum\(|"
      rf"/\s*\([^/]{{0,80}}\b{_SUM}")),
    ("division", "division by the target", True,
     r"/\s*\(?\s*(?:[\w.]+\.abs\()?(?:y|y_true|true|targets?|gt|labels?|actual)\b(?!\.(?:shape|size|numel))"),
    ("division", "division that may be by 0", False, rf"/\s*\(?\s*{_SMALL_NAMES}"),
    ("division", "inverse", False, rf"{_LIB}reciprocal\(|\.reciprocal\(|\*\*\s*\(?-\s*[\d.]|\.pow\(\s*-"),
    ("division", "mean of a selection that may be empty", False,
     r"\w\[[^\]=]*(?:==|[<>]|mask|valid|label|pos)[^\]]*\]\s*\.mean\(\)"),
    ("norm", "distance or norm in the loss", False,
     (rf"{_LIB}(?:cdist|pairwise_distance|norm|linalg\.norm|vector_norm)\(|(?<![\w.])(?:cdist|norm)\(|"
      r"\.norm\((?:dim=[^)]*|-?\d?[^)]{0,20})\)|PairwiseDistance\(")),
    ("log", "logarithm", False, rf"{_LIB}(?:log|log2|log10)\(|(?<![\w.])log(?:2|10)?\(|\.log(?:2|10)?\(\)"),
    ("sqrt", "root", False, rf"{_LIB}r?sqrt_?\(|(?<![\w.])sqrt\(|\.r?sqrt_?\(\)|\*\*\s*\(?\s*(?:0?\.5\b|1\.?0?\s*/)"),
    ("pow", "fractional power", False,
     (rf"\.pow\((?:0?\.\d|[a-z_]\w*[^\d)]*\))|{_LIB}pow\([^()]*,\s*(?:0?\.\d|1\.?/|[a-z])|\*\*\s*\(?\s*(?:0?\.\d|"
      rf"1\.?0?\s*/\s*\w)|"
      r"\bgamma\b\s*[=:]\s*0?\.\d")),
    ("spread", "standard deviation", False, rf"{_LIB}(?:std|reduce_std)\(|\.std\((?:dim=[^)]*|-?\d?)?\)"),
    ("matrix decomposition", "matrix decomposition", False,
     (rf"{_LIB}(?:svd|eigh?|symeig|inv|inverse|cholesky\w*|solve|slogdet|logdet|det|pinv|lstsq)\(|"
      r"\.(?:svd|eigh?|symeig|inverse|cholesky|logdet|det)\(\)")),
    ("inverse trigonometry", "angle", False, rf"{_LIB}(?:atan2|arctan2|angle)\(|(?<![\w.])atan2\("),
)  # fmt: skip
_COMPILED = tuple(
    (kind, what, near, lazy_regex(pattern, re.IGNORECASE if kind != "log" else 0))
    for kind, what, near, pattern in _EDGES
)

GUARD = lazy_regex(
    r"[+]\s*(?:(?:self|cfg|args|np|tf\.keras\.backend|K|config)\.)?\w*(?:eps\w*|tiny|smooth\w*)|"
    r"\+\s*(?:10\s*\*\*\s*-|1\.?0?e-0?[1-9]\b|"
    r"0?\.0+1\b)|\+\s*1\.?0?\s*\)|clamp|clip\(|clip_by|\bmax(?:imum)?\(.{0,60}(?:eps|1e-|\b1(?:\.0)?\))|"
    r"log1p|logsumexp|no_nan|xlogy|log_softmax|logsigmoid|"
    r"\beps(?:ilon)?\s*=\s*(?!0(?:\.0*)?\b|1e-(?:1\d|[2-9]\d))|\bor 1\b|F\.normalize",
    re.IGNORECASE,
)
"""Code that keeps an input away from the singularity."""

_ASSIGNED = lazy_regex(r"^\s*(?:self\.)?(\w+)\s*=(?!=)\s*(.+)$")
_PROBABILITY = lazy_regex(
    r"(?<!log_)(?<!log)\b(?:soft_?max|sigmoid)\w*\(|activation\W{1,3}(?:softmax|sigmoid)", re.IGNORECASE
)
_LOG_OF_NAME = lazy_regex(r"\blog2?\(\s*(?:1\.?0?\s*-\s*)?(?:self\.)?(\w+)")
_CALLED = lazy_regex(r"[\w.\[\]]+")
_NO_FORMULA = lazy_regex(
    r"\b(?:wandb|self|logger|logging|writer|trainer|mlflow|run|accelerator)\.log\(|\bNormalize\(|"
    r"^\s*(?:[#\"']|import |from |print\(|def |class |@)|https?://|"
    r"\b(?:head_dim|d_k|d_model|hidden_size|embed_dim|dim_head|num_heads|fan_in|fan_out|len\()|sqrt\(\s*(?:d|dk|d_h|dim|n_?heads?|\d+)\s*\)|init\w*\.|init\(|"
    r"\.item\(\)|no_grad|\bppl\b|perplexity|\blr\b|learning_rate|total_norm|grad_norm|[/\\]norm\w*[/\\.]|"
    r"[\w.-]+/[\w.-]+/[\w.-]+|\b\d{2,}/\d{2,}",
    re.IGNORECASE,
)
"""Loggers, paths, architecture constants and numbers without a gradient."""

TOO_SMALL = lazy_regex(
    r"\b1(?:\.0?)?\s*-\s*(?:1e-0?(?:[89]|[1-9]\d)\b|\w*eps\w*\s*\(?1e-(?:[89]|1\d))|"
    r"\b\w*eps(?:ilon)?\w*\W{1,3}\s*1e-(?:1[0-9]|[2-9]\d)\b|[+,]\s*1e-(?:1[0-9]|[2-9]\d)\b",
    re.IGNORECASE,
)
"""A guard that rounds to nothing: fp32 resolves 1.2e-7 at 1, and dividing by 1e-15 gives gradients of 1e15."""


def anomaly(facts: Facts) -> tuple[str, str, str] | None:
    """``(operator, text, where)`` of the backward function that anomaly detection names."""
    for message in facts.all_said(r"returned nan values|error detected in \w+backward"):
        found = _ANOMALY.search(message.text)
        if found:
            return found.group(1), message.text.strip(), message.where
    return None


def kind_of(operator: str) -> str | None:
    """The kind of an operator by its backward's stem; None if it has no singularity."""
    if _NOT_A_VECTOR_NORM.search(operator):
        return None
    for kind, stems in SINGULAR.items():
        if re.fullmatch(rf"(?:{stems})\d*", operator, re.IGNORECASE):
            return kind
    return None


def lost(facts: Facts) -> Line | None:
    """A non-finite value that is measured, printed or named in an error."""
    bad = not_finite(facts)
    if bad is not None:
        return bad
    printed = facts.symptoms.printed
    if printed is not None:
        return Line(printed.where, printed.text.strip()[:160])
    refused = facts.said(r"\bto satisfy the constraint\b|probability tensor contains either|input contains nan")
    return None if refused is None else Line(refused.where, refused.text.strip()[:160])


def edges(facts: Facts) -> list[Edge]:
    """Unguarded formulas in order; those that ordinary values break come first."""
    lines = list(code_lines(facts))
    texts = [text for _, text in lines]
    guarded, probabilities = guarded_names(texts), assigned(texts, _PROBABILITY)
    found: list[Edge] = []
    for where, text in lines:
        edge = edge_in(text, guarded)
        taken = _LOG_OF_NAME.search(text)
        if edge is not None and edge[0] == "log" and taken and taken.group(1) in probabilities:
            edge = "log", "the logarithm of a softmax or sigmoid", True
        if edge is not None:
            found.append(Edge(edge[0], edge[1], where, text.strip(), edge[2]))
    return sorted(found, key=lambda each: not each.near)


def edge_in(text: str, guarded: frozenset[str] = frozenset()) -> tuple[str, str, bool] | None:
    """``(kind, what, near)`` of the first unguarded formula in a line."""
    if GUARD.search(text) or _NO_FORMULA.search(text):
        return None
    for kind, what, near, pattern in _COMPILED:
        match = pattern.search(text)
        if match is None:
            continue
        operand = text[match.start() : match.end() + 40]
        if not any(name.rpartition(".")[2] in guarded for name in _CALLED.findall(operand)):
            return kind, what, near
    return None


def assigned(texts: Sequence[str], pattern: re.Pattern[str]) -> frozenset[str]:
    """Names assigned a value that matches a pattern."""
    return frozenset(
        found.group(1) for text in texts if (found := _ASSIGNED.match(text)) and pattern.search(found.group(2))
    )


def guarded_names(texts: Sequence[str]) -> frozenset[str]:
    """Names assigned a guarded value."""
    return assigned(texts, GUARD)


def code_lines(facts: Facts) -> Iterator[Line]:
    """Settings and notes, which contain code lines and formulas, then code lines in tracebacks."""
    yield from (Line(*each) for each in facts.settings.texts())
    for message in facts.messages:
        if re.match(r"\s{2,}\S", message.text) or re.search(r"\w\(.*\)", message.text):
            yield Line(message.where, message.text)


def first_line(lines: Iterable[Line], pattern: re.Pattern[str], *, but: re.Pattern[str] | None = None) -> Line | None:
    """The first line that matches a pattern and not the other."""
    matching = (line for line in lines if pattern.search(line.text))
    return next((line for line in matching if but is None or not but.search(line.text)), None)
