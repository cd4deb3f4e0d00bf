"""Features of a run: symptoms, setup, experiments and words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.context import Context
from stayfinite.rules.facts import Facts
from stayfinite.rules.symptoms import Symptoms

MOST = 200_000
"""Characters read per run."""
LONGEST = 2_000
"""Characters per line."""

_WORD = lazy_regex(r"[a-z]+[0-9]*|[a-z]*[0-9]+[a-z]+")
_OF_A_FORM = lazy_regex(
    r"(?i)\s*(?:#{1,6}\s.{0,80}|[-*]?\s*\[[ x]\]\s.*|```\w*|"
    r"[-*`\s]*(?:\w++[` ._-]{0,2}){0,4}\b(?:version|platform|os|python|cuda|cudnn|pytorch|torch|gpus?)\b"
    r"[^:=]{0,30}[:=].{0,80}|"
    r"[-*`\s]*[\w.\[\]-]{2,40}\s*(?:==|[:=]|\s)\s*v?\d+\.\d+\.\d+[\w.+-]*)\s*"
)
"""Headings, boxes, versions and platforms that a form for issues asks for."""
_HUMPS = lazy_regex(r"_|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
PAIR = "+"
"""Between two words in a row."""
_ENDINGS = ("ing", "ed", "es", "s")
_SHORTEST_STEM = 4


def features(facts: Facts) -> set[str]:
    """All features. Facts give phrases, texts give words and pairs of them."""
    texts = (text for _, text in facts.lines if not _OF_A_FORM.fullmatch(text[:LONGEST]))
    return {*_shown(facts.symptoms), *_known(facts.context), *_tried(facts), *words(texts)}


def words(texts: Iterable[str]) -> set[str]:
    """The stemmed words of these lines and each two in a row, including parts of names like ``CrossEntropyLoss``."""
    found: set[str] = set()
    room = MOST
    for text in texts:
        line = text[:LONGEST]
        room -= len(line)
        if room < 0:
            break
        stems = [_stem(word) for word in _WORD.findall(_HUMPS.sub(" ", line).lower()) if len(word) > 1]
        found.update(stems)
        found.update(map(PAIR.join, pairwise(stems)))
    return found


@cache
def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= _SHORTEST_STEM:
            return word[: -len(ending)]
    return word


def _shown(seen: Symptoms) -> Iterator[str]:
    holds = {
        "the loss is not finite": seen.bad_losses,
        "the gradient norm is not finite": seen.bad_norms,
        "an evaluation loss is not finite": seen.bad_evals,
        "a printed value is not finite": seen.printed,
        "a metric is not finite": seen.lost_metrics,
        "bad from the start": seen.from_start,
        "good points before": seen.bad and (seen.good_before or seen.late_start),
        "many good points before": seen.bad and (seen.good_before >= 10 or seen.late_start),
        "a loss of 0": seen.zero_loss,
        "a loss that falls to 0 at once": seen.falls_to_nothing,
        "a gradient of 0": seen.zero_norms,
        "a loss that does not move": seen.flat or seen.chance is not None,
        "a loss at chance": seen.chance,
        "a score that does not move": seen.still_score,
        "a score of 0": seen.zero_score,
        "one class for every input": seen.one_class,
        "growth before the end": seen.explodes,
        "a loss that diverges": seen.diverges,
        "a loss that swings": seen.swings,
        "a loss of no known size": seen.absurd,
        "a loss that falls": seen.falls,
        "skipped steps": seen.skipped,
        "every step skipped": seen.never_updates,
        "a loss scale that collapses": seen.collapses,
        "a rate of 0": seen.lr_zero,
        "learning from rewards": seen.rewarded,
        "a crash": seen.crash,
        "nothing odd in the numbers": not seen.trouble,
    }
    yield from (phrase for phrase, value in holds.items() if value)
    yield from (f"reported: {each.kind}" for each in seen.told)
    yield from (f"in contradiction: {each.kind}" for each in seen.contradictions)


def _known(context: Context) -> Iterator[str]:
    yield f"precision {context.precision.value}" if context.precision is not None else "precision unknown"
    if context.weights is not None:
        yield f"weights in {context.weights.value}"
    if context.lr is not None and 0 < context.lr.value < math.inf:
        yield f"a rate from 1e{math.floor(math.log10(context.lr.value))}"
    if context.optimizer is not None:
        yield f"optimizer {re.split(r'[^a-z0-9]', str(context.optimizer.value).lower())[0][:10]}"
    holds = {
        "fp16 somewhere": context.half,
        "a model trained in bf16": context.family,
        "adapters in use": context.adapters,
        "quantized weights": context.quantized,
        "DeepSpeed in use": context.deepspeed,
        "gradient checkpointing on": context.checkpointing,
        "an attention kernel named": context.attention,
        "a card named": context.gpu,
    }
    yield from (phrase for phrase, value in holds.items() if value is not None)


def _tried(facts: Facts) -> Iterator[str]:
    for world in facts.reported_experiments:
        if world in facts.tried:
            continue  # counted by what the experiment says about each cause
        yield f"{'fine' if world.good else 'no better'} with {world.subject}"
