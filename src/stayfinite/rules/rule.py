"""What a rule is: a known cause, its explanation, and what speaks for and against it in a run.

A rule's module holds three things::

    '''Title of the page, one line.

    ## What it means
    ## Why it happens
    ## How to recognize it
    ## How to fix it
    ## When it is a false alarm
    '''

    def judge(facts: Facts) -> Iterator[Clue]:
        ...                                         # yields clues, weighs nothing against other rules

    RULE = Rule(code="SF103", slug="double-fp16", ..., judge=judge, page=__doc__)

Clues add up as evidence does: on a scale of log-odds, from a prior that says how often a failing run has this cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from stayfinite.core.finding import Severity
from stayfinite.rules.facts import Facts

PROOF = 6.5
"""The library names this cause, or a rerun has shown it."""
STRONG = 4.0
"""Rarely seen without this cause."""
FAIR = 2.0
"""Fits this and few other causes."""
HINT = 1.0
"""Fits this and other causes."""
AGAINST = -2.0
"""Unusual for this cause."""
REFUTED = -9.0
"""Rules this cause out."""

SECTIONS = ("What it means", "Why it happens", "How to recognize it", "How to fix it", "When it is a false alarm")


@dataclass(frozen=True, slots=True)
class Clue:
    """An observation that makes a cause more or less likely."""

    text: str
    """The observation with its numbers: `grad_norm is nan from the first logged step on`."""
    weight: float
    """Log-odds: PROOF, STRONG, FAIR, HINT, AGAINST, REFUTED, or between them."""
    where: str = ""
    """`train.log:17`."""
    risk: bool = False
    """The failure could happen (a setting), as opposed to happened (a symptom)."""
    fix: str = ""
    """A more specific fix than the rule's own."""
    mild: bool = False
    """Training continues despite it: a finding with only mild clues is a warning, not an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One known cause of failure."""

    code: str
    slug: str
    severity: Severity
    title: str
    """One sentence for the finding, true whenever the rule fires."""
    fix: str
    """The shortest helpful instruction, with exact settings."""
    page: str
    """The module's docstring: title line and sections."""
    judge: Callable[[Facts], Iterable[Clue]] = field(default=lambda _: ())
    proofs: Mapping[str, str] = field(default_factory=dict)
    """Observations that prove the cause where they are true or not empty, with the words for it (`{}`: the value)."""
    prior: float = -4.0
    """Log-odds of this cause for a failing run, without evidence."""
    beats: tuple[str, ...] = ()
    """Slugs of symptoms or weaker names of this cause, which rank after it."""
    observes: Mapping[str, str] = field(default_factory=dict)
    """Facts from probes, reruns or scans: name in `Facts.observed`, and the meaning of the value."""

    @property
    def heading(self) -> str:
        """The page's first line."""
        return self.page.strip().splitlines()[0]

    def section(self, title: str) -> str:
        """The text under one of the page's headings."""
        _, _, rest = self.page.partition(f"## {title}\n")
        return rest.partition("\n## ")[0].strip()


def confidence(log_odds: float) -> float:
    """Log-odds as a probability below 1."""
    return min(0.99, 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, log_odds)))))
