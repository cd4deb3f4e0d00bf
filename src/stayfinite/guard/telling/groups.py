"""Which kinds of rows were refused, and how often: a kind that is hardly ever learned from must not go unseen."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stayfinite.core.decision import Action, Code, Decision

MOST_GROUPS = 256
"""Kinds that are counted apart."""

MOST_STEPS = 64
"""Steps whose kinds are remembered until it is known what became of them."""

ENOUGH = 4
"""Refused batches of one kind from which on their share is told while the run goes on."""

MOSTLY = 0.5

Described = Sequence[str | tuple[str, str]]
"""What ``describe(batch)`` returns: for each row a text, or a pair of its group and a text."""


class Groups:
    """Counts batches by the groups that their rows belong to.

    Arguments:
        describe: the loop's own words for the rows of a batch. Where they name no group, it is not called again.
    """

    def __init__(self, describe: Callable[[Any], Described] | None) -> None:
        self._describe = describe
        self._now: set[str] = set()
        self._steps: deque[tuple[int, set[str]]] = deque(maxlen=MOST_STEPS)
        self._told: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.bounded: Counter[str] = Counter()

    def see(self, batch: Any) -> None:
        """A batch goes into the coming step."""
        if self._describe is None:
            return
        try:
            groups = {str(row[0])[:80] for row in self._describe(batch) if is_pair(row)}
        except Exception:  # whatever somebody's function may raise; an incident says so in its place
            groups = set()
        if not groups:
            self._describe = None
        self._now |= groups

    def close(self, step: int) -> None:
        """All batches since the last call went into this step."""
        if self._now:
            self._steps.append((step, self._now))
            self._now = set()

    def forget(self) -> None:
        """The step failed."""
        self._now = set()

    def count(self, decision: Decision) -> Iterator[str]:
        """Take in what became of a step; yields a sentence for each group that is refused more often than not."""
        while self._steps and self._steps[0][0] < decision.step:
            self._steps.popleft()
        if not self._steps or self._steps[0][0] != decision.step or decision.code is Code.SCALE_SEARCH:
            return
        groups = self._steps.popleft()[1]
        for group in groups:
            if group not in self.seen and len(self.seen) >= MOST_GROUPS:
                continue
            self.seen[group] += 1
            self.refused[group] += decision.refused
            self.bounded[group] += decision.action is Action.BOUND
            if group not in self._told and self.refused[group] >= ENOUGH and self._mostly_refused(group):
                self._told.add(group)
                yield self.sentence(group)

    def sentence(self, group: str) -> str:
        """`28 of 30 batches with 'kind B' were refused`."""
        return f"{self.refused[group]:,} of {self.seen[group]:,} batches with {group!r} were refused"

    def neglected(self) -> list[str]:
        """A sentence for each group that is refused more often than the others, those with the largest share first."""
        hit = [group for group, count in self.refused.items() if count and self._stands_out(group)]
        return [self.sentence(group) for group in sorted(hit, key=lambda g: -self.refused[g] / self.seen[g])]

    def _mostly_refused(self, group: str) -> bool:
        return self.refused[group] > MOSTLY * self.seen[group] and self._stands_out(group)

    def _stands_out(self, group: str) -> bool:
        """Whether a group is refused at least twice as often as all others together."""
        others = sum(self.seen.values()) - self.seen[group]
        theirs = (sum(self.refused.values()) - self.refused[group]) / others if others else 0.0
        return self.refused[group] / self.seen[group] > 2 * theirs


def is_pair(row: object) -> bool:
    """Whether a row's description names its group."""
    return isinstance(row, tuple) and len(row) == 2


def text_of(row: object) -> str:
    """What a row is, in words."""
    return f"[{row[0]}] {row[1]}" if isinstance(row, tuple) and len(row) == 2 else str(row)
