"""The optimizer's fp32 copy overwrites the loaded weights.

## What it means
Mixed-precision optimizers keep an fp32 master copy of the weights and write it over the 16-bit ones at every step. A
checkpoint was loaded into the 16-bit weights after that copy had been taken: the first step writes the old copy back,
and what was loaded is gone.

## Why it happens
`model.load_state_dict()` is called after `deepspeed.initialize`, after apex's `amp.initialize`, or after an optimizer
with master weights was built; or a checkpoint is loaded for the module only (`load_optimizer_states=False`) and the
master copy is left as it was; or the two come from different checkpoints.

## How to recognize it
- The loss right after loading is good; after one step it is that of an untrained (or the earlier) model.
- The jump comes while warmup has the rate at 1e-9 or 1e-7: no update of that size can do it.
- Evaluation before the first step is right and after it is not, at any learning rate, even 0.
- Master copy and weight differ by more than a rounding.

## How to fix it
- Load before the optimizer is built: weights first, then `deepspeed.initialize` or `amp.initialize`.
- DeepSpeed: `engine.load_checkpoint(path)` with its optimizer states; for weights alone `engine.load_checkpoint(path,
  load_module_only=True)`, which refreshes the fp32 copy, or `engine.optimizer.refresh_fp32_params()` after loading by
  hand.
- apex: `amp.initialize` after loading; save and load `amp.state_dict()` with the rest.
- Megatron: `--no-load-optim` copies the model's weights into the master parameters (`reload_model_params()`).
- plain torch with a copy of one's own: `master.data.copy_(weight.data.float())` after loading.

## When it is a false alarm
A loss that rises for some steps after resuming without optimizer moments or warmup is SF701: the weights are right
there.
"""

import math

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule, quote, reaches

_TAKES_COPIES = lazy_regex(
    r"\bamp\.initialize\((?!.*\bO[01]\b)|\bFP16_?Optimizer\(|\bdeepspeed\.initialize\(|\bMixedPrecisionOptimizer\("
)
_LOADS_WEIGHTS = lazy_regex(r"(?<!optimizer)(?<!optim)(?<!amp)(?<!scaler)(?<!scheduler)\.load_state_dict\(")

NEGLIGIBLE_RATE = 1e-6
"""An update at this rate cannot undo what a model knows."""

LARGEST_DIFFERENCE = 0.01
"""Relative difference of master copy and weight: bf16 rounds by at most 0.4%."""


def judge(facts: Facts) -> Clues:
    """Clues: differing copies are proof; in a log, a good first loss after loading and a jump at the first step."""
    yield from reaches(
        facts,
        "master.largest_difference",
        LARGEST_DIFFERENCE,
        "master copy and weight differ by {:.2g} of the weight",
        PROOF,
    )
    yield from quote(
        None if facts.symptoms.healthy else _loaded_after_copies(facts),
        STRONG + FAIR,
        "weights are loaded after the fp32 copy was made: {:.100}",
    )
    yield from quote(jump_at_no_rate(facts), STRONG)
    loaded = facts.said(r"(?:loaded|loading|resum\w+).{0,60}checkpoint|load_state_dict")
    seen = facts.symptoms
    if loaded is None or seen.points < 3 or seen.bad:
        return
    losses = [value for run in facts.runs for _, value, line in run.column("loss") if line > loaded.line]
    if len(losses) >= 3 and losses[0] > 0 and min(losses[1:]) > 2.5 * losses[0]:
        yield Clue(f"after loading the loss is {losses[0]:.4g}, then above {min(losses[1:]):.4g}", FAIR, loaded.where)


def _loaded_after_copies(facts: Facts) -> Line | None:
    """Weights loaded after their fp32 copy was taken."""
    copied = False
    for where, text in facts.settings.texts():
        if _TAKES_COPIES.search(text):
            copied = True
        elif copied and _LOADS_WEIGHTS.search(text):
            return Line(where, text.strip())
    return None


def jump_at_no_rate(facts: Facts) -> Line | None:
    """A good first loss that gets far worse by tiny updates."""
    for run in facts.runs:
        rows = [(value, line) for _, value, line in run.column("loss") if math.isfinite(value)]
        rates = (
            [value for _, value, line in run.column("lr") if math.isfinite(value) and line <= rows[-1][1]]
            if rows
            else []
        )
        if len(rows) < 2 or not rates or not 0 < max(rates[:3]) <= NEGLIGIBLE_RATE or rows[0][0] <= 0:
            continue
        first, (then, line) = rows[0][0], rows[1]
        if then > 2 * first and then - first > 2.0 and min(value for value, _ in rows[1:4]) > 1.5 * first:
            rate = max(rates[:3])
            return Line(
                run.where(line),
                f"the loss goes from {first:.4g} to {then:.4g} at rate {rate:.3g}: too much for an update",
            )
    return None


RULE = Rule(
    code="SF113",
    fix="load the weights before building the optimizer, or refresh its fp32 copy (DeepSpeed: load_module_only=True)",
    prior=-5.0,
    beats=("loss-diverging", "resume-state-missing", "lr-too-high", "exploding-gradient"),
    observes={"master.largest_difference": "the largest relative difference of a master copy and its weight"},
)
