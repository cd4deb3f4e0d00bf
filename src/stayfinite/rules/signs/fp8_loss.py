"""Signs that an fp8 training failed."""

from __future__ import annotations

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, Clue
from stayfinite.rules.signs.going_bad import began_well, remark, told_climb, went_bad

_OFF = (
    r"\bdiverg(?:es?|ed|ing)\b|\b(?:does|did|do)(?: not|n't) (?:\w+ )?converge|\bnot converging|\bloss spikes?\b|"
    r"\bgrad(?:ient)?[ _]norm\b.{0,20}\b(?:spik|explod)\w*"
)


def lost(facts: Facts) -> Clue | None:
    """NaN, or a loss that leaves its course."""
    broken = went_bad(facts)
    if broken is not None:
        text, where = broken.text, broken.where
        started = began_well(facts)
        return Clue(text if started is None else f"{text}, though {started}", FAIR if started is None else HINT, where)
    if facts.symptoms.diverges:
        return Clue("the loss climbs", HINT, facts.symptoms.at("largest_loss"))
    climb = None if facts.symptoms.healthy else told_climb(facts)
    if climb is not None:
        return Clue(climb[0], HINT, climb[1])
    told = remark(facts, _OFF)
    return None if told is None else Clue(told.text.strip(), HINT, told.where)
