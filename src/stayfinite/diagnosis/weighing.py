"""What rules say, weighed with what runs like this one had: clues decide, experience where they do not.

A cause's score is the odds of its clues times its share of similar labelled runs. The constants were chosen on the
first looks at the sixth to the eleventh set of cases (benchmarks/failures), with shares from the other sets.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice

from stayfinite.core.finding import Finding
from stayfinite.readers.runs.directory import STEPS
from stayfinite.rules.calibration import calibrated
from stayfinite.rules.experience.features import PAIR
from stayfinite.rules.experience.likely import SAME, Likely, likely_causes
from stayfinite.rules.experiments import EXPERIMENTS
from stayfinite.rules.facts import Facts
from stayfinite.rules.ranking import A_GUESS, BY_UPDATES, LEAST, RESTATED, SURE_WITHOUT_TROUBLE, SYMPTOMS, place
from stayfinite.rules.registry import rule_of
from stayfinite.rules.signs.going_bad import at_first_step, weights_survived
from stayfinite.rules.signs.post_training import samples
from stayfinite.rules.signs.witness import not_finite

WEAK = 0.06
"""Confidence from which a cause's clues are weighed; alone they would not do."""

DECIDED = 0.8
"""A cause of this confidence stands as the rules have it."""

CLUES = 1.0
"""What clues count over experience, on a scale of log-odds."""

NO_CLUE = -3.0
"""The log-odds of a cause without clues."""

UNHEARD = 0.01
"""The share of a cause that no similar run had."""

HALF = frozenset(
    {"fp16-overflow", "fp16-overflow-model-family", "fp16-underflow", "double-fp16", "pure-fp16-weights",
     "loss-scale-collapse", "clip-before-unscale"}
)  # fmt: skip
"""Causes that need fp16."""

NEED_SCALE = HALF | {"adam-eps-underflow"}
"""Causes of 16-bit steps, which a guarded run without a loss scale does not have."""

NAN_ONLY = frozenset(
    {"fp16-overflow", "fp16-overflow-model-family", "pure-fp16-weights", "adam-eps-underflow", "sdpa-kernel-bug",
     "fp8-zero-amax", "loss-formula-singularity", "where-nan-branch", "naive-exp", "attention-fully-masked-row",
     "nan-weights", "nan-loss", "poisoned-checkpoint", "constant-feature", "empty-batch", "deepspeed-overlap-comm"}
)  # fmt: skip
"""Causes that act through NaN or infinity alone: not behind a loss that is finite and does not move."""

STILL = frozenset(
    {"params-frozen", "params-not-in-optimizer", "detached-loss", "lr-zero", "lr-too-low", "lr-too-high", "dead-units",
     "vanishing-gradient", "zero-gradient", "labels-shuffled", "unscaled-input", "softmax-before-cross-entropy",
     "softmax-axis", "step-missing", "cleared-before-step", "bad-init", "input-ignored", "label-imbalance"}
)  # fmt: skip
"""Causes that leave a loss where it began: twice as likely behind one that does not move."""

SILENT = frozenset(
    {"lr-too-high", "lr-too-low", "lr-zero", "no-warmup", "no-clipping", "exploding-gradient", "vanishing-gradient",
     "dead-units", "bad-init", "bad-initial-loss", "unscaled-input", "constant-feature", "label-imbalance",
     "labels-shuffled", "unshuffled", "input-ignored", "accumulation-unscaled", "no-zero-grad", "toxic-batch",
     "excess-dropout", "truncation", "loss-diverging", "loss-collapse", "zero-gradient", "nan-loss"}
)  # fmt: skip
"""Causes that change numbers alone: no error comes of them but one about NaN."""

IN_THE_WEIGHTS = frozenset({"nan-weights", "poisoned-checkpoint", "bad-init", "adam-eps-underflow"})
"""Causes that lie in the weights: no loss is normal again behind the first NaN."""

WATCHED = frozenset(
    {"params-not-in-optimizer", "params-twice", "params-frozen", "detached-loss", "step-missing", "double-step",
     "no-zero-grad", "cleared-before-step", "clip-before-unscale"}
)  # fmt: skip
"""Causes that a guard refuses or rules out in its own steps."""

MOST = 3
"""Causes that experience may bring forward."""

CLEAR, FAINT = 0.7, 0.1
"""Beside a cause of confidence ``CLEAR``, a guess below ``FAINT`` is not worth a reader's time."""

WORTH_NAMING = 0.06
"""The share of similar reports from which a cause is named where nothing shows trouble."""

LONGEST_FILLER = 3
"""Words such as 'the' and 'was' are no reason that a reader believes."""

SAID_ABOVE = ("reported:", "in contradiction:")
"""Reasons that are among the symptoms, in better words."""

BASE, PART = 0.05, 0.5
"""Confidence in a cause that experience alone brings forward is ``BASE + PART * its part of all scores``."""


def weigh(findings: Sequence[Finding], facts: Facts) -> list[Finding]:
    """The findings in their new order, with those that experience adds."""
    alone = [each for each in findings if each.severity == "info" or each.confidence >= calibrated(LEAST)]
    findings = [each for each in findings if each in alone or _possible(each.cause, facts)]
    causes = {each.cause: each for each in findings if each.severity != "info" and each.cause not in SYMPTOMS}
    sure = [each for each in findings if each.cause in SYMPTOMS and each.confidence >= DECIDED]
    if not _open([*causes.values(), *sure], facts):
        return alone
    known = sorted((_informed(each, facts) for each in likely_causes(facts)), key=lambda each: -each.share)
    shares = {_group(each.cause): each.share for each in known}
    scores = {cause: _score(each.confidence, shares.get(_group(cause), 0.0)) for cause, each in causes.items()}
    seen = {each.cause for each in findings if each.cause in SYMPTOMS and each.confidence >= SURE_WITHOUT_TROUBLE}
    named = {*map(_group, causes), *seen}
    total = sum(scores.values()) + sum(_score(0.0, share) for cause, share in shares.items() if cause not in named)
    possible = (each for each in known if _group(each.cause) not in named and _possible(each.cause, facts))
    new = list(islice(possible, MOST))
    scores |= {each.cause: _score(0.0, each.share) for each in new}
    restated = {each.cause: replace(each, confidence=0.0) for each in findings if each.cause in SYMPTOMS}
    causes |= {each.cause: restated.get(each.cause) or _finding(each) for each in new}
    ordered = sorted(scores, key=lambda cause: -scores[cause])
    ordered = [cause for at, cause in enumerate(ordered) if at < MOST or causes[cause].confidence > 0]
    weighed, ceiling = [], 1.0
    for cause in ordered:
        ceiling = min(ceiling, max(causes[cause].confidence, BASE + PART * scores[cause] / total))
        weighed.append(replace(causes[cause], confidence=round(ceiling, 2)))
    if weighed and weighed[0].confidence >= CLEAR:
        weighed = [each for each in weighed if causes[each.cause].confidence or each.confidence >= FAINT]
    return sorted([*weighed, *(each for each in findings if each.cause not in causes)], key=place)


def possibilities(facts: Facts) -> list[Finding]:
    """The causes of similar reports, as remarks: nothing shows trouble, but nothing was measured, or somebody asks."""
    if facts.symptoms.healthy and not facts.written:
        return []
    known = likely_causes(facts) if facts.messages or facts.symptoms.healthy else []
    if not known or known[0].share < WORTH_NAMING:
        return []
    possible = (each for each in known if _possible(each.cause, facts))
    return [
        replace(_finding(each), severity="info", confidence=round(PART * each.share, 2))
        for each in islice(possible, MOST)
    ]


def _open(causes: Collection[Finding], facts: Facts) -> bool:
    """Whether there is trouble, and neither a clue nor a signal of post-training decides what it is."""
    if any(each.confidence >= DECIDED or each.cause in facts.post_training for each in causes):
        return False
    return bool(causes) or bool(facts.symptoms.trouble and not facts.symptoms.doubtful)


def _group(cause: str) -> str:
    return SAME.get(cause, cause)


def _informed(likely: Likely, facts: Facts) -> Likely:
    """Its share after what a standstill and reported experiments say."""
    seen = facts.symptoms
    stands = (seen.flat or seen.chance is not None) and not (seen.non_finite or seen.crash)
    share = likely.share * (2.0 if stands and likely.cause in STILL else 1.0)
    for world in facts.tried:
        for experiment in EXPERIMENTS:
            if experiment.subject == world.subject:
                fine = experiment.chance_of_fine(likely.cause)
                share *= fine if world.good else 1.0 - fine
    return replace(likely, share=share)


def _possible(cause: str, facts: Facts) -> bool:
    """Whether it is a cause, no symptom restated, and nothing speaks against it."""
    if cause in RESTATED:
        return False
    rule, seen = rule_of(cause), facts.symptoms
    if rule.code.startswith("SF3") and any(map(samples, facts.runs)):
        return False  # a policy makes its own rows
    if cause in HALF and (facts.context.not_half is not None or (seen.unscaled_skips and facts.context.half is None)):
        return False
    if cause in NAN_ONLY and seen.points and not (seen.non_finite or seen.crash):
        return False
    if cause in BY_UPDATES - {"toxic-batch"} and (weights_survived(facts) or at_first_step(facts)):
        return False
    if cause in IN_THE_WEIGHTS and weights_survived(facts):
        return False
    if any(run.source.endswith(STEPS) for run in facts.runs):  # a guard wrote them
        scaled = seen.first_scale is not None or facts.context.half is not None or facts.context.eight_bits is not None
        if cause in WATCHED or (not scaled and (cause in NEED_SCALE or cause.startswith("fp8-"))):
            return False
    if cause in SILENT and seen.crash and not seen.non_finite and not_finite(facts) is None:
        return False
    return sum(clue.weight for clue in rule.clues(facts)) > -2.0


def _score(confidence: float, share: float) -> float:
    sure = min(max(confidence, 1e-4), 1.0 - 1e-4)
    clues = max(0.0, math.log(sure / (1.0 - sure)) - NO_CLUE)
    return math.exp(CLUES * clues) * (share + UNHEARD)


def _finding(likely: Likely) -> Finding:
    rule = rule_of(likely.cause)
    telling = [each for each in likely.because if len(each) > LONGEST_FILLER and not each.startswith(SAID_ABOVE)]
    said = ", ".join(each if " " in each else f"'{each.replace(PAIR, ' ')}'" for each in telling)
    why = f"from similar runs ({said})" if said else "because it is common"
    return rule.finding(0.0, "", [f"{A_GUESS} {why}: nothing in the files points to one cause"])
