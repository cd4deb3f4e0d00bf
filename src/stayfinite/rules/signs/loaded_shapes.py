"""Shape mismatches between checkpoint and model: which tensors and which dimension."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts

_LINE = (
    r"size mismatch for|copying (?:a |the )param|tensor of shape|found shape .{0,60}in the checkpoint|"
    r"dimensions in the (?:model|checkpoint)|assign requires shapes|weight shape .{0,40}not compatible|"
    r"shape mismatch|shapes? .{0,30}(?:checkpoint|incompatible)"
)
_SHAPE = lazy_regex(r"[\[(]((?:\d+(?:, ?)?)+)[\])]")
_NAME = lazy_regex(r"\b[A-Za-z_]\w*(?:[./]\w+)+")
_TOKENS = lazy_regex(
    r"emb(?:ed)?_?(?:tokens|ding|in|out)?\b|embeddings?|\bwte\b|word|token|vocab|lm_head|shared\b|output_projection|"
    r"predictions|generator|decoder\.(?:weight|bias|proj)",
    re.IGNORECASE,
)
_POSITIONS = lazy_regex(r"pos(?:ition)?(?:al)?_?emb|embed_positions|\bwpe\b|position", re.IGNORECASE)
LEFT_OUT = r"\bskipp|\bignor|newly initiali[sz]ed|instantiated|not loaded|\bdropp|will be (?:re-?)?initiali[sz]ed"
"""The loader skips the tensor: a new head is meant to be new."""
_NAMED = lazy_regex(r"\bwte\b|word|tok|vocab|lm_head", re.IGNORECASE)
FEWEST_TOKENS = 200
"""Fewer rows are classes, unless the tensor is named after tokens."""
VOCABULARY = 5_000
"""Rows on both sides that only a vocabulary has."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor whose shape differs in the checkpoint."""

    name: str
    one: tuple[int, ...]
    other: tuple[int, ...]
    where: str

    @property
    def only_rows(self) -> bool:
        """Whether only the first dimension differs."""
        return len(self.one) == len(self.other) and self.one[1:] == self.other[1:] and self.one[0] != self.other[0]

    @property
    def of_tokens(self) -> bool:
        """Whether its rows are tokens."""
        if not self.only_rows or _POSITIONS.search(self.name):
            return False
        if min(self.one[0], self.other[0]) < FEWEST_TOKENS:
            return _NAMED.search(self.name) is not None
        return _TOKENS.search(self.name) is not None or (
            len(self.one) == 2 and min(self.one[0], self.other[0]) >= VOCABULARY
        )


def differences(facts: Facts) -> list[Difference]:
    """Every tensor with two shapes in the log."""
    found = []
    for message in facts.all_said(_LINE):
        shapes = [
            tuple(int(part) for part in shape.split(",") if part.strip()) for shape in _SHAPE.findall(message.text)
        ]
        if len(shapes) >= 2 and shapes[0] != shapes[1]:
            name = _NAME.search(re.sub(r"torch\.Size", "", message.text))
            found.append(Difference(name.group() if name else "", shapes[0], shapes[1], message.where))
    return found


def other_vocabulary(facts: Facts) -> Difference | None:
    """The first such tensor, if all of them differ only in their number of tokens."""
    all_of_them = differences(facts)
    return all_of_them[0] if all_of_them and all(each.of_tokens for each in all_of_them) else None
