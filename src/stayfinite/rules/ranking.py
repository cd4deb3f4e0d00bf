"""Rank findings from clues.

1. Each rule yields clues. Their weights add to the rule's prior; the sum as a probability is its confidence.
2. A cause outranks what it explains: a finding that a likelier one ``beats`` loses confidence accordingly.
3. If the run shows no trouble, mere risks are not reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stayfinite.core.finding import Finding
from stayfinite.core.settings import in_script
from stayfinite.rules.experiments import MEANS
from stayfinite.rules.facts import Facts
from stayfinite.rules.raised import Raised, raised_in
from stayfinite.rules.reported_experiments import tells_of_loss
from stayfinite.rules.rule import HINT, STRONG, Clue, Clues, Rule, confidence, quote
from stayfinite.rules.signs.going_bad import at_first_step
from stayfinite.rules.signs.named_causes import NAMED, who_names

LEAST = 0.12
"""Findings below this confidence are dropped."""

SURE_WITHOUT_TROUBLE = 0.45
"""Without trouble in the numbers and without a crash, findings below this are dropped."""

MOST_EVIDENCE = 6
"""Evidence lines per finding."""

SYMPTOMS = frozenset(
    {"nan-loss", "loss-diverging", "loss-collapse", "zero-gradient", "exploding-gradient", "step-fails", "metric-stuck"}
)
"""Findings that name a symptom, not its cause."""

RESTATED = SYMPTOMS - {"exploding-gradient"}
"""Those that are never a cause. Exploding gradients are one: of a deep or recurrent model without clipping."""

A_GUESS = "a guess"
"""How the evidence of a cause begins that experience alone names."""

BY_UPDATES = frozenset(
    {"lr-too-high", "no-clipping", "no-warmup", "exploding-gradient", "bf16-lost-updates",
     "no-zero-grad", "accumulation-unscaled", "double-step", "clip-before-unscale", "toxic-batch"}
)  # fmt: skip
"""Causes that act through an update: not behind a first step, nor behind losses that come back after NaN."""

TRIED = 2.0
"""Weight of a reported experiment relative to a remark in passing."""

KEEPS = 0.25
"""Share of its confidence that a finding keeps if a certain one explains it."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rule with clues, before comparison with others."""

    rule: Rule
    clues: tuple[Clue, ...]
    confidence: float

    @property
    def only_risk(self) -> bool:
        """Whether nothing shows that it happened."""
        return all(clue.risk for clue in self.clues if clue.weight > 0)


def rank(facts: Facts, rules: Iterable[Rule], *, least: float = LEAST) -> list[Finding]:
    """Judge the facts by these rules; most likely cause first, none below the least confidence."""
    suspects = [suspect for rule in rules if (suspect := _suspect(rule, facts)) is not None]
    if facts.symptoms.healthy:
        suspects = [suspect for suspect in suspects if not suspect.only_risk]
    if facts.runs and not facts.symptoms.trouble:
        # Without visible trouble, a guess or a library's warning is no reason for an alarm.
        suspects = [suspect for suspect in suspects if suspect.confidence >= SURE_WITHOUT_TROUBLE]
    if at_first_step(facts):
        suspects = [suspect for suspect in suspects if suspect.rule.slug not in BY_UPDATES]
    suspects = _explained_away(suspects)
    suspects = [suspect for suspect in suspects if suspect.confidence >= least]
    suspects.sort(key=lambda suspect: (suspect.rule.severity == "info", -suspect.confidence, suspect.rule.code))
    errors = raised_in(facts.messages)
    return sorted((_finding(suspect, errors) for suspect in suspects), key=place)


def place(finding: Finding) -> tuple[bool, bool, float]:
    """Sort key: causes before restated symptoms, then by confidence."""
    repeats = finding.cause in RESTATED and finding.confidence < SURE_WITHOUT_TROUBLE
    return finding.severity == "info", repeats, -finding.confidence


def _suspect(rule: Rule, facts: Facts) -> Suspect | None:
    clues = (*rule.clues(facts), *_told(rule, facts), *_named(rule, facts))
    if not any(clue.weight > 0 for clue in clues):
        return None
    return Suspect(rule, clues, confidence(rule.prior + sum(clue.weight for clue in clues)))


def _told(rule: Rule, facts: Facts) -> Clues:
    """Clues from reported reruns, if there is trouble to explain."""
    if facts.symptoms.healthy:
        return
    for world in facts.reported_experiments:
        weight = MEANS.get((world.subject, world.good), {}).get(rule.slug)
        if weight is not None:
            if world in facts.tried:
                yield Clue(f"tried: {world.text}", TRIED * weight, world.where)
                continue
            if not facts.symptoms.trouble and not tells_of_loss(world.text):
                continue
            outcome = "fine" if world.good else "no better"
            yield Clue(f"reported {outcome} with {world.subject}: {world.text}", weight, world.where)


def _named(rule: Rule, facts: Facts) -> Clues:
    """A clue if somebody says that it is this."""
    pattern = NAMED.get(rule.slug)
    if pattern is None or not facts.written:
        return
    yield from quote(who_names(pattern, facts.written), STRONG + HINT, "reported: {:.120}")


def _explained_away(suspects: list[Suspect]) -> list[Suspect]:
    """Lower each suspect by the strongest one that explains it."""
    explained = []
    for suspect in suspects:
        strongest = max(
            (other.confidence for other in suspects if suspect.rule.slug in other.rule.beats and other is not suspect),
            default=0.0,
        )
        explained.append(replace(suspect, confidence=suspect.confidence * (1.0 - (1.0 - KEEPS) * strongest)))
    return explained


def _finding(suspect: Suspect, errors: Mapping[str, Raised]) -> Finding:
    telling = _once_a_place(sorted((clue for clue in suspect.clues if clue.weight > 0), key=lambda clue: -clue.weight))
    against = [clue for clue in suspect.clues if clue.weight < 0]
    lines = [_line(clue, errors) for clue in telling[:MOST_EVIDENCE]]
    frames = (errors[clue.where].frame for clue in telling[:MOST_EVIDENCE] if clue.where in errors)
    lines += [f"your code at {frame}" for frame in dict.fromkeys(frames) if frame]
    lines += [f"against it: {_line(clue, errors)}" for clue in against]
    where = next((clue.where for clue in telling if clue.where), "")
    where = errors[where].where if where in errors else where
    fix = "; ".join(dict.fromkeys(clue.fix for clue in telling if clue.fix))
    found = suspect.rule.finding(round(suspect.confidence, 2), where, lines, fix=fix)
    mild = found.severity == "error" and all(clue.mild for clue in telling)
    return replace(found, severity="warning") if mild else found


def _once_a_place(clues: Sequence[Clue]) -> list[Clue]:
    """The clues without a second one of the same line of a script: several looks at it say the same."""
    places: set[str] = set()
    kept = []
    for clue in clues:
        if not in_script(clue.where) or clue.where not in places:
            kept.append(clue)
        places.add(clue.where)
    return kept


def _line(clue: Clue, errors: Mapping[str, Raised]) -> str:
    error = errors.get(clue.where)
    text = clue.text.strip().splitlines()[-1].strip() if "\n" in clue.text else clue.text  # the error of a traceback
    where = clue.where if error is None else error.where
    return f"{where}: {text}" if where else text
