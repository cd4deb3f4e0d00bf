"""What a loss does in a healthy training of some kinds, so that nobody who says it has a sick run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from stayfinite.core.lazy_regex import lazy_regex

UsualKind = Literal["still", "loss rises", "negative loss", "explodes", "low score"]

_NOISE_LEVELS = lazy_regex(
    r"diffusion|\bdd[ip]m\b|\bdit(?:[-_ ]|\b)|\bflux(?:\.1|[-_ ](?:dev|lora|kontext|schnell))\b|\bsdxl\b|"
    r"flow[- ]matching|text[-_ ]to[-_ ]image|\bldm\b|score[- ](?:based|matching)|\bdreambooth\b",
    re.IGNORECASE,
)
"""A loss over random noise levels is flat and noisy after the first thousand steps, while samples improve."""
_REWARDS = lazy_regex(
    r"reinforcement learning|\b(?:d{1,3}qn|ddpg|td3|sac|ppo|a[23]c|trpo|dreamer\w*|muzero|alphazero|impala)\b|"
    r"\b(?:actor|critic|policy|q)[-_/ ]?loss|--?env(?:_name)?\b",
    re.IGNORECASE,
)
"""The loss of a policy or of values may rise while the policy improves."""
_NEGATIVE = lazy_regex(
    r"si-?s[nd]r|neg(?:ative)?[-_ ]?s[nd]r|(?<![a-z])nll|log[-_ ]?likelihood|\belbo\b|\bcosine", re.IGNORECASE
)
"""Losses that are below 0 when all is well."""
_QUEUE = lazy_regex(r"\bmoco(?:[-_ ]?v?\d)?\b", re.IGNORECASE)
"""A queue of negatives that fills up makes the task harder: the loss rises to ln of its length first."""
_MARGIN = lazy_regex(
    r"\barc[-_ ]?face|\bcos[-_ ]?face|\bam[-_ ]?softmax|additive (?:angular )?margin|\bsphereface", re.IGNORECASE
)
"""With a margin the loss begins twice as high, and no answer is right for the first epochs."""
_SUMMED = lazy_regex(r"\bdarknet\b", re.IGNORECASE)
"""Losses summed over all boxes begin in the hundreds or thousands."""
_ASKED = lazy_regex(
    r"(?<!why )\b(?:can|could|may|is|are)\b[^.!?\n]{0,30}\bnegative\b[^.!\n]{0,30}\?|"
    r"\bnegative\b.*\b(?:ok|okay|normal|fine|expected|a problem|supposed to)\b[^.!\n]*\?",
    re.IGNORECASE,
)
"""Who asks whether a loss may be negative has one that may: a density has no upper bound."""


def usual_kinds(texts: Iterable[str], *, arrived: bool) -> set[UsualKind]:
    """What is no complaint beside these texts.

    Arguments:
        arrived: they say that the results are good.
    """
    lines = list(texts)
    negative = any(_NEGATIVE.search(line) or _ASKED.search(line) for line in lines)
    found: set[UsualKind] = {"negative loss"} if negative else set()
    if any(map(_QUEUE.search, lines)):
        found.add("loss rises")
    if any(map(_MARGIN.search, lines)):
        found |= {"still", "low score"}
    if any(map(_SUMMED.search, lines)):
        found.add("explodes")
    if arrived or any(map(_NOISE_LEVELS.search, lines)):
        return found | {"still", "loss rises"}
    return found | {"loss rises"} if any(map(_REWARDS.search, lines)) else found
