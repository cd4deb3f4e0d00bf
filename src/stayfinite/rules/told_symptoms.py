"""What people report, set beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

from stayfinite.core.series import RunSeries
from stayfinite.rules.signs.reported_symptoms import ReportedSymptom, by_a_person
from stayfinite.rules.symptoms import Symptoms

_UNMEASURED = frozenset(
    {"same answers", "bad answers", "weights still", "worse after loading", "low score", "not as expected", "rate off",
     "score falls", "negative loss", "negative kl", "memory grows", "hangs", "overflows", "slow"}
)  # fmt: skip
"""Symptoms that no loss shows, or that may be meant to be."""
FEW = 3
"""Fewer rates than this may be equal by chance."""
HARDLY_LOWER, HIGHER, LARGE = 0.9, 1.2, 20.0
"""A last loss over the first, or over the lowest: it bears out who says that it does not move, or
that it rises. A large one that does not fall bears out who says that it is."""

EXCERPT = 30
"""So few finite losses may be a part of the log that somebody chose, who says that there is NaN."""


def believed(
    told: Sequence[ReportedSymptom], seen: Symptoms, runs: Sequence[RunSeries], usual: Set[str]
) -> list[ReportedSymptom]:
    """What counts beside the numbers of a log: what no loss shows, unless it is usual, and what the losses bear out."""
    unmeasured = _UNMEASURED - usual - ({"low score"} if _in_first_epoch(runs) else set())
    return [each for each in told if each.kind in unmeasured or _borne_out(each, seen)]


def _in_first_epoch(runs: Sequence[RunSeries]) -> bool:
    """Whether the log ends within the first epoch, where a score of 0 is no news."""
    epochs = [point.epoch for run in runs for point in run.points if point.epoch is not None]
    return bool(epochs) and max(epochs) <= 1


def _borne_out(told: ReportedSymptom, seen: Symptoms) -> bool:
    """Whether the losses themselves show, if faintly, what somebody complains of."""
    first, best, last = seen.first_loss, seen.best_loss, seen.last_loss
    if first is None or best is None or last is None or best <= 0:
        return False
    if told.kind == "not finite":
        return seen.points <= EXCERPT and by_a_person(told.text)
    if told.kind == "still":
        return last >= HARDLY_LOWER * first
    if told.kind == "rate still":
        return seen.lrs > FEW and seen.smallest_lr == seen.largest_lr
    if told.kind == "explodes" and seen.norm_growth >= HIGHER:
        return True
    high = told.kind == "explodes" and last >= max(LARGE, HARDLY_LOWER * first)
    return high or (told.kind in ("explodes", "loss rises") and last >= HIGHER * best)


def with_told(seen: Symptoms, told: Sequence[ReportedSymptom]) -> Symptoms:
    """Add reported symptoms as if measured, unless measurements contradict them."""
    kinds = {each.kind: each.where for each in told}
    where = dict(seen.where)
    changed: dict[str, Any] = {}
    if "not finite" in kinds and not (seen.bad or seen.bad_losses or seen.printed or seen.lost_metrics):
        changed["bad_losses"] = 1
        where.setdefault("summary", kinds["not finite"])
    if "zero loss" in kinds and not seen.good_losses and not seen.bad:
        changed["zero_losses"] = max(seen.zero_losses, 1)
        where.setdefault("first_zero", kinds["zero loss"])
    if "zero gradient" in kinds and seen.typical_norm is None:
        changed["zero_norms"] = 2
        where.setdefault("start", kinds["zero gradient"])
    if "rate 0" in kinds and not seen.lrs:
        changed["lrs"] = changed["zero_lrs"] = 2
        where.setdefault("zero_lr", kinds["rate 0"])
    grows = kinds.get("explodes", None if "worse after loading" in kinds else kinds.get("loss rises"))
    if grows is not None and not seen.bad:
        changed["diverges"] = True
        where.setdefault("largest_loss", grows)
    elif "still" in kinds and not seen.bad:
        changed["flat"] = True
        where.setdefault("start", kinds["still"])
    return replace(seen, **changed, where=where, told=(*seen.told, *told))
