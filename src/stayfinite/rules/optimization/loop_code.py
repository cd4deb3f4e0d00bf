"""Lines of a training loop in a script or a remark, for rules about their order."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Settings
from stayfinite.rules.facts import Facts

BACKWARD = lazy_regex(r"(?<!def )(?:\.backward\(|scaler\w*\.scale\(|accelerator\.backward\(|manual_backward\()")
STEP = lazy_regex(r"\b\w*(?:optim|opt)\w*\.step\(|scaler\w*\.step\(")
ZERO = lazy_regex(
    r"\.zero_grads?\(|\.clear_grad\w*\(|\.grad(?:\.data)?\s*\*?=(?!=)|\.grad\b[\w.]*\.zero_\(|set_to_none"
)
LOOP = lazy_regex(r"^\s*(?:for|while)\b.{0,80}:")
CLIP = lazy_regex(r"clip_grad_(?:norm|value)_?\(|clip_gradients\(")
UNSCALE = lazy_regex(r"\bunscale_\(")
SCALE = lazy_regex(r"scaler\w*\.scale\(", re.IGNORECASE)
COMMENT = lazy_regex(r"^\s*(?:#|//)")
_OF_OUTPUTS = lazy_regex(r"\.(?:sum|mean)\(\)\.backward\(\)")
_LOSS = lazy_regex(r"loss|criterion|entropy|reward|target|label", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the loop."""

    where: str
    text: str
    order: int


def calls(facts: Facts, pattern: re.Pattern[str]) -> list[Call]:
    """Code lines that match the pattern, without comments, in order."""
    return [
        Call(where, text.strip(), order)
        for order, (where, text) in enumerate(facts.settings.notes)
        if pattern.search(text) and not COMMENT.match(text)
    ]


def learns_nothing(settings: Settings) -> bool:
    """Whether a loop only tests code: backward of an output's sum, and no loss."""
    code = [text for _, text in settings.notes if not COMMENT.match(text)]
    backward = [text for text in code if BACKWARD.search(text)]
    return bool(backward) and all(_OF_OUTPUTS.search(text) for text in backward) and not any(map(_LOSS.search, code))


def shows_a_loop(facts: Facts) -> bool:
    """Whether both backward and an optimizer step are shown; only then does an absence mean anything."""
    return bool(calls(facts, BACKWARD)) and bool(calls(facts, STEP))
