"""The expected first loss of an untrained model, and whether a log's first loss is far above it."""

from __future__ import annotations

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.signs.numbers import finite

CLASSES = ("num_classes", "num_labels", "n_classes", "classes", "nb_classes", "nc", "vocab_size", "padded_vocab_size")
BENCHMARKS = {
    r"\b(?:fashion[-_ ]?)?k?mnist\b|\bcifar[-_ ]?10\b|\bsvhn\b": 10,
    r"\bcifar[-_ ]?100\b": 100,
    r"\bimagenet(?:[-_ ]?1k)?\b": 1000,
}
"""Well-known datasets by number of classes."""
OUT_OF_PROPORTION = 100.0
"""Multiple of the guessing loss that no batch reaches."""
EARLY_STEP = 20
"""A later loss is no longer that of the initial weights."""

_COUNTED = lazy_regex(
    r"\b(\d{1,6})[- ](?:way|class(?:es)?|labels?|categories|symbols?|characters|letters)\b|\bln\((\d{1,6})\)",
    re.IGNORECASE,
)
_SUMMED = r"reduction\W{1,3}['\"]?sum\b|size_average\s*=\s*False|\bvae\b|reduce_sum|torch\.sum"


def classes_of(facts: Facts) -> float | None:
    """The number of classes from settings, text or a known dataset; None if unknown."""
    told = finite(facts.settings.value(*CLASSES))
    if told is not None and told >= 2:
        return told
    for _, text in facts.lines:
        found = _COUNTED.search(text)
        count = 0 if found is None else int(found.group(1) or found.group(2))
        if count >= 2:
            return float(count)
    return next((count for pattern, count in BENCHMARKS.items() if facts.mentioned(pattern)), None)


def first_loss_far_above(facts: Facts, times: float = OUT_OF_PROPORTION, *, by: int | None = None) -> Line | None:
    """``(text, where)`` where the loss before any update is 100 times what a guess among the classes has.

    With ``by``, only where the log says that it is that of this step or an earlier one.
    """
    first, classes = facts.symptoms.first_loss, classes_of(facts)
    if first is None or classes is None or first < times * math.log(classes):
        return None
    point = next((point for run in facts.runs for point in run.points if point.loss is not None), None)
    step = None if point is None or point.step == point.epoch else point.step
    if (step is None and by is not None) or (step is not None and step > (EARLY_STEP if by is None else by)):
        return None
    if facts.mentioned(_SUMMED):
        return None
    guess = f"chance among {classes:.0f} classes is {math.log(classes):.3g}"
    return Line(facts.symptoms.at("start"), f"the first loss is {first:.4g}; {guess}")
