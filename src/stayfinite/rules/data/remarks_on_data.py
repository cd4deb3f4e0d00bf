"""Clues about the data of a non-finite run: numpy's warnings, the loss, and the reporter's own trials."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, quote

_PREPARED = (
    r"RuntimeWarning: (?:invalid value|divide by zero|overflow|mean of empty|degrees of freedom)(?! encountered in exp)"
)
"""numpy's own warnings. numpy is outside the graph: it computes inputs and targets."""
_TARGETS = lazy_regex(
    r"bbox|box_|_box|boxes|\bgt_|anchor|targets?_?d?[wh]?\b|widths?\b|heights?\b|area|dataset|data_|preprocess|loader|"
    r"transform|augment|normali[sz]e|\.mean\(|\.std\(|feature|\bmel\b|spectr|librosa|log10?\(",
    re.IGNORECASE,
)
_BY_SPREAD = lazy_regex(r"/ ?\(?[\w.]*(?:std|sigma|scale|stddev)", re.IGNORECASE)
"""A constant column, not a bad row."""
_UNALIGNABLE = (
    r"(?:\b|_)ctc(?:\b|_)|espnet|"
    r"\b(?:aishell|thchs|librispeech|wenetspeech|gigaspeech|tedlium|switchboard|timit|st-?cmd)\w*"
)
ABSURD = 1e6
"""No utterance costs this much, and a negative log-probability is never below 0."""

_DETECTS = (
    r"object[-_ ]?detect|\bdetector\b|faster[-_ ]?r-?cnn|mask[-_ ]?r-?cnn|\bssd\w*|\bssd_|\byolo\w*|retinanet|"
    r"efficientdet|\brpn_|\bbbox"
)


def remarks(facts: Facts) -> Iterator[Clue]:
    """Clues for and against a bad row besides loader messages and the loss curve."""
    prepared = facts.said(_PREPARED)
    if prepared is not None and (facts.symptoms.trouble or not facts.messages[1:]):
        near = " ".join(message.text for message in facts.messages if 0 <= message.line - prepared.line <= 1)
        by_spread = re.search(r"divi", prepared.text) is not None and _BY_SPREAD.search(near) is not None
        weight = HINT / 2 if by_spread else STRONG if _TARGETS.search(near) else FAIR
        yield Clue(f"numpy warns while preparing data: {prepared.text.strip()}", weight, prepared.where)
    yield from _alignment(facts)
    if not facts.symptoms.explodes:
        yield from quote(facts.mentioned(_DETECTS), 1.5, "box regression takes logarithms: {:.80}")


def _alignment(facts: Facts) -> Iterator[Clue]:
    """CTC is infinite by definition for a row with fewer frames than symbols."""
    measured = any("ctc" in name.lower() for run in facts.runs for name in run.metrics)
    if not measured and facts.mentioned(_UNALIGNABLE) is None:
        return
    first = facts.symptoms.first_bad
    if first is not None and first.loss is not None and math.isinf(first.loss):
        place = facts.symptoms.at("first_bad")
        yield Clue("the CTC loss is infinite: a row has no alignment", 3.0, place)
    elif first is not None:
        yield Clue("the loss needs an alignment, which a row may not have", 1.0)


def impossible_alignment(facts: Facts) -> Iterator[Clue]:
    """A negative or absurdly large CTC loss: what implementations return for an impossible alignment."""
    for run in facts.runs:
        for name, track in run.metrics.items():
            if "ctc" not in name.lower():
                continue
            for value, line in zip(track.values, track.lines, strict=True):
                if math.isfinite(value) and (value < -1.0 or value > ABSURD):
                    text = f"{name} {value:.3g}: no alignment is this unlikely"
                    yield Clue(text, STRONG + FAIR, run.where(line))
                    return
