"""What most often lies behind a symptom, for a run whose text names nothing better.

The order is that of the labeled public cases (benchmarks/failures): where a loss is NaN in fp16 it was fp16's range in
three of four, where it is NaN from the start in another format a row of the data, the rate or the loss's formula.
"""

from __future__ import annotations

from stayfinite.rules.facts import Facts
from stayfinite.rules.signs.post_training import samples
from stayfinite.rules.signs.reported_symptoms import Kind

SYMPTOMS = frozenset(
    {"nan-loss", "loss-diverging", "loss-collapse", "zero-gradient", "exploding-gradient", "step-fails", "metric-stuck"}
)
"""Findings that name what is seen, and no cause of it."""

_TOLD: dict[Kind, tuple[str, ...]] = {
    "weights still": ("params-not-in-optimizer", "params-frozen", "lr-zero"),
    "same answers": ("lr-too-high", "label-imbalance", "dead-units"),
    "bad answers": ("prompt-format-differs", "tokenizer-mismatch", "dtype-differs-at-inference"),
    "worse after loading": ("resume-state-missing", "architecture-mismatch", "dtype-differs-at-inference"),
}


_IN_WORDS: dict[Kind, str] = {
    "weights still": "weights that do not change",
    "same answers": "a model that gives every input the same answer",
    "bad answers": "answers that are empty, repeat or make no sense",
    "worse after loading": "results that are worse after loading",
}


def usual_causes(facts: Facts) -> tuple[str, tuple[str, ...]]:
    """``(symptom in words, causes)``, the commonest first; none where nothing is wrong or a crash says what is."""
    seen = facts.symptoms
    for kind, causes in _TOLD.items():
        if seen.said(kind) is not None:
            return _IN_WORDS[kind], causes
    if seen.one_class:
        return _IN_WORDS["same answers"], _TOLD["same answers"]
    if seen.zero_norms and "the gradient is 0" in seen.trouble:
        adapters = ("params-frozen", "gradient-checkpointing-no-input-grad", "detached-loss")
        return "a gradient of 0", adapters if facts.context.adapters else (
            "detached-loss",
            "params-frozen",
            "dead-units",
        )
    if seen.collapses:
        return "a loss scale that collapses", ("loss-scale-collapse", "fp16-overflow", "lr-too-high")
    if seen.never_updates and facts.context.half is None:
        return "a run whose every step is skipped", ("bad-data-row", "loss-formula-singularity", "lr-too-high")
    if seen.bad or seen.bad_losses or seen.bad_evals or seen.printed or seen.lost_metrics:
        if any(map(samples, facts.runs)) and facts.context.half is None:
            return "NaN in training on rewards", ("lr-too-high", "loss-formula-singularity")
        tuned = facts.mentioned(r"\bsft\b|instruct|\bchat|\bq?lora\b|alpaca|assistant|conversation")
        if tuned is not None and facts.context.half is None:
            return "NaN in tuning on answers", ("all-labels-masked", "lr-too-high", "bad-data-row")
        if facts.context.half is not None:
            return "NaN in fp16", ("fp16-overflow", "pure-fp16-weights", "bad-data-row")
        if seen.good_before >= 2:
            return "NaN after good steps", ("lr-too-high", "bad-data-row", "loss-formula-singularity")
        unknown = facts.context.precision is None and facts.context.family is not None
        first = "fp16-overflow-model-family" if unknown else "loss-formula-singularity"
        symptom = "NaN from the start" if seen.from_start else "NaN"
        return symptom, ("lr-too-high", "bad-data-row", first)
    if seen.zero_loss and not (seen.learns_at_zero or seen.doubtful):
        return "a loss of 0", ("all-labels-masked", "tokenizer-mismatch", "fp16-overflow-model-family")
    if seen.zero_score:
        return "a score of 0", ("zero-answer-rate", "references-transposed", "prompt-format-differs")
    if seen.diverges or seen.absurd:
        return "a loss that explodes", ("lr-too-high", "bad-data-row", "no-clipping")
    if seen.flat or seen.chance is not None or seen.still_score:
        return "a loss that does not move", ("params-not-in-optimizer", "lr-too-high", "lr-zero")
    return "", ()
