"""What a rule is: a known cause, its explanation, and what speaks for and against it in a run.

A rule's module is named after its slug and holds three things::

    '''Title of the page, one line.

    ## What it means
    ## Why it happens
    ## How to recognize it
    ## How to fix it
    ## When it is a false alarm
    '''


    def judge(facts: Facts) -> Clues: ...  # yields clues, weighs nothing against other rules


    RULE = Rule(code="SF103", fix="load the weights in fp32", beats=("pure-fp16-weights",))

The registry adds slug, page and `judge`. What can be declared needs no `judge`: `proofs`, `plans`, `signals`.
Clues add up as evidence does: on a scale of log-odds, from a prior that says how often a failing run has this cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stayfinite.core.finding import Finding, Severity
from stayfinite.core.settings import CodeFault
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import in_short, number_in

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


Clues = Iterator[Clue]


class Quoted(Protocol):
    """A line, a message, a setting or a remark."""

    @property
    def text(self) -> str: ...
    @property
    def where(self) -> str: ...


def quote(
    found: Quoted | None, weight: float, words: str = "{}", *, where: str = "", risk: bool = False, mild: bool = False
) -> Clues:
    """A clue that quotes what was found (`{}` in its words; `{:.80}`: the first 80 letters); none if nothing was.

    Of a traceback it quotes the error.
    """
    if found is not None:
        yield Clue(words.format(error_of(found.text)), weight, where or found.where, risk, mild=mild)


def error_of(text: str) -> str:
    """The last line of a traceback; any other text itself."""
    text = text.strip()
    return text.splitlines()[-1].strip() if "\n" in text and "Traceback (" in text else text


def reaches(
    facts: Facts, name: str, least: float, words: str, weight: float = STRONG, *, proof: float = math.inf
) -> Clues:
    """A clue if a probe's number (`{}` in the words) is at least this; from ``proof`` on it is one."""
    seen = facts.seen(name)
    number = None if seen is None else number_in(seen.value)
    if seen is not None and number is not None and math.isfinite(number) and number >= least:
        yield Clue(words.format(number), PROOF if number >= proof else weight, seen.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One known cause of failure."""

    code: str
    slug: str = ""
    """The module's name."""
    severity: Severity = "error"
    fix: str
    """The shortest helpful instruction, with exact settings."""
    page: str = ""
    """The module's docstring: title line and sections."""
    judge: Callable[[Facts], Iterable[Clue]] = field(default=lambda _: ())
    """The module's function of this name."""
    proofs: Mapping[str, str] = field(default_factory=dict)
    """Observations that prove the cause where they are true or not empty, with the words for it (`{}`: the value)."""
    says: Mapping[str, float] = field(default_factory=dict)
    """What libraries print where it happens, as a pattern (case ignored), and its weight."""
    warns: Mapping[str, float] = field(default_factory=dict)
    """The same, where training continues despite it; nothing where the run is healthy."""
    plans: Mapping[str, float] = field(default_factory=dict)
    """Remarks on a plan (`rules/plans.py`) and their weight."""
    mild_plans: Mapping[str, float] = field(default_factory=dict)
    """The same, where training continues despite it."""
    signals: bool = False
    """A sign of this cause in the signals of RL and preference training (`core/post_training/signs.py`) is evidence."""
    prior: float = -4.0
    """Log-odds of this cause for a failing run, without evidence."""
    beats: tuple[str, ...] = ()
    """Slugs of symptoms or weaker names of this cause, which rank after it."""
    observes: Mapping[str, str] = field(default_factory=dict)
    """Facts from probes, reruns or scans that `judge` asks for: name in `Facts.observed`, and what the value means."""

    @property
    def title(self) -> str:
        """The page's first line: one sentence, true whenever the rule fires."""
        return self.page.strip().splitlines()[0]

    @property
    def asks_for(self) -> set[str]:
        """Names in `Facts.observed` that it looks at."""
        return {*self.observes, *self.proofs, *self.plans, *self.mild_plans}

    def section(self, title: str) -> str:
        """The text under one of the page's headings."""
        _, _, rest = self.page.partition(f"## {title}\n")
        return rest.partition("\n## ")[0].strip()

    def finding(
        self, confidence: float, where: str, evidence: Iterable[str], *, title: str = "", fix: str = ""
    ) -> Finding:
        """This cause, seen: with the rule's own title and fix where no better ones are known."""
        return Finding(
            code=self.code,
            cause=self.slug,
            severity=self.severity,
            confidence=confidence,
            where=where,
            title=title or self.title,
            evidence=tuple(evidence),
            fix=fix or self.fix,
        )

    def clues(self, facts: Facts) -> Clues:
        """What speaks for and against it: what its judge says, and what is declared."""
        yield from self.judge(facts)
        for pattern, weight in self.says.items():
            yield from quote(facts.said(pattern), weight, "{:.240}")
        for pattern, weight in {} if facts.symptoms.healthy else self.warns.items():
            yield from quote(facts.said(pattern), weight, "{:.240}", mild=True)
        for plans, mild in ((self.plans, False), (self.mild_plans, True)):
            for name, weight in plans.items():
                planned = facts.seen(name)
                for text, where, *fix in [] if planned is None else planned.value:
                    yield Clue(text, weight, where, risk=True, fix=fix[0] if fix else "", mild=mild)
        if self.signals:
            yield from seen_in_log(facts, self.slug)
        for fault in facts.settings.code_faults:
            if fault.cause == self.slug and _applies(fault, facts):
                weight = PROOF + FAIR if fault.fact else PROOF if fault.sure else STRONG + HINT
                yield Clue(fault.text, weight, fault.where, fix=fault.fix, mild=fault.mild)
        for name, words in self.proofs.items():
            shown = facts.seen(name)
            if shown is not None and shown.value:
                yield Clue(words.format(in_short(shown.value)), PROOF, shown.where)


def _applies(fault: CodeFault, facts: Facts) -> bool:
    """Whether the run shows the symptom that the fault needs."""
    symptoms = facts.symptoms
    if fault.when == "exploded":
        far = symptoms.first_loss is not None and symptoms.first_loss > FAR
        return bool(symptoms.non_finite or symptoms.explodes or (far and symptoms.trouble))
    if fault.when == "finite":
        return not symptoms.non_finite
    return not fault.when or bool(symptoms.flat or symptoms.zero_norms)


FAR = 1e3
"""A first loss that weights of a usual size do not cause."""


def seen_in_log(facts: Facts, cause: str) -> Clues:
    """A clue if the signals of a log of RL or preference training show this cause, with numbers and step."""
    seen = facts.post_training.get(cause)
    if seen is not None:
        yield Clue(f"step {seen.sign.step:,}: {seen.sign.text}", STRONG + FAIR, seen.where, fix=seen.sign.advice)


def confidence(log_odds: float) -> float:
    """Log-odds as a probability below 1."""
    return min(0.99, 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, log_odds)))))
