"""Count refused batches by group of rows, so a group that is hardly ever learned shows up."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stayfinite.core.decision import Action, Code, Decision

MOST_GROUPS = 256
"""Most groups to count."""

MOST_STEPS = 64
"""Steps to keep until they are decided."""

ENOUGH = 4
"""Refused batches of one group before it is reported during the run."""

MOSTLY = 0.5

Described = Sequence[str | tuple[str, str]]
"""Result of ``describe(batch)``: for each row a text, or a pair of group and text."""


class Groups:
    """Counts batches by the groups of their rows.

    Arguments:
        describe: describes the rows of a batch. Not called again if it names no group.
    """

    def __init__(self, describe: Callable[[Any], Described] | None) -> None:
        self._describe = describe
        self._now: set[str] = set()
        self._steps: deque[tuple[int, set[str]]] = deque(maxlen=MOST_STEPS)
        self._reported: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.bounded: Counter[str] = Counter()

    def see(self, batch: Any) -> None:
        """Add a batch to the next step."""
        if self._describe is None:
            return
        try:
            groups = {str(row[0])[:80] for row in self._describe(batch) if is_pair(row)}
        except Exception:  # user code may raise anything; an incident reports it
            groups = set()
        if not groups:
            self._describe = None
        self._now |= groups

    def close(self, step: int) -> None:
        """Assign all batches since the last call to this step."""
        if self._now:
            self._steps.append((step, self._now))
            self._now = set()

    def forget(self) -> None:
        """Drop the batches of a failed step."""
        self._now = set()

    def count(self, decision: Decision) -> Iterator[str]:
        """Count a decided step; yield a sentence for each group that is mostly refused."""
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
            if group not in self._reported and self.refused[group] >= ENOUGH and self._mostly_refused(group):
                self._reported.add(group)
                yield self.sentence(group)

    def sentence(self, group: str) -> str:
        """`28 of 30 batches with 'kind B' were refused`."""
        return f"{self.refused[group]:,} of {self.seen[group]:,} batches with {group!r} were refused"

    def neglected(self) -> list[str]:
        """A sentence for each group refused more often than others, largest share first."""
        hit = [group for group, count in self.refused.items() if count and self._stands_out(group)]
        return [self.sentence(group) for group in sorted(hit, key=lambda g: -self.refused[g] / self.seen[g])]

    def _mostly_refused(self, group: str) -> bool:
        return self.refused[group] > MOSTLY * self.seen[group] and self._stands_out(group)

    def _stands_out(self, group: str) -> bool:
        """Whether a group is refused more than twice as often as all others together."""
        others = sum(self.seen.values()) - self.seen[group]
        theirs = (sum(self.refused.values()) - self.refused[group]) / others if others else 0.0
        return self.refused[group] / self.seen[group] > 2 * theirs


def is_pair(row: object) -> bool:
    """Whether a row's description names its group."""
    return isinstance(row, tuple) and len(row) == 2


def text_of(row: object) -> str:
    """Description of a row."""
    return f"[{row[0]}] {row[1]}" if isinstance(row, tuple) and len(row) == 2 else str(row)
