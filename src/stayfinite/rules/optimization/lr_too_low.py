"""The learning rate is too low to learn anything.

## What it means
The updates are so small against the weights that the model hardly changes: a ratio of update to weight below 1e-6,
where about 1e-3 is usual. The loss moves with the batches and not with training.

## Why it happens
A rate for fine-tuning a large model (1e-6) given to adapters or to a model from scratch; a warmup that is longer than
the run; a decay that ended early; a rate that is divided by the batch or the number of processes twice; a layer-wise
decay that leaves nothing for the lower layers; SGD with a rate that is meant for Adam.

## How to recognize it
- The loss is flat over the whole log, the gradient norm is finite and not zero, the rate in the log is below 1e-7
  (Adam) or 1e-5 (SGD).
- Raising the rate tenfold makes the loss move.

## How to fix it
Multiply the rate by 10 until the loss falls, and stop one step before it shakes.

- transformers: `learning_rate` 2e-5 to 5e-5 for full fine-tuning, 1e-4 to 3e-4 for LoRA; `warmup_steps` at most a
  tenth of the updates.
- Lightning: `Tuner(trainer).lr_find(model)`. plain torch: print `optimizer.param_groups[0]["lr"]` in the loop, not
  the config.
- DeepSpeed: `"scheduler": {"params": {"warmup_num_steps": ...}}` in updates, not in micro-batches.
- SGD: 0.01 to 0.1 with momentum; Adam's 1e-4 does nothing there.

## When it is a false alarm
In the first steps of a warmup tiny rates are right. Reinforcement learning and preference training of large models
work at 1e-6 and below: look at the rewards, not at the loss. In bf16 weights, updates may be lost though the rate is
usual (SF107).
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.optimization.planned_limits import too_low
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.course import evaluates_alike, stands_still

TINY_UPDATE = 1e-6
"""Update over weight below which a model does not change."""

TINY_RATE = 2e-7
"""At this rate Adam changes a weight of 0.02 by less than 1e-5 of it per step."""


def judge(facts: Facts) -> Clues:
    """Clues: tiny measured updates; in a log, a flat loss with a tiny nonzero rate."""
    ratio = facts.seen("update_ratio.largest")
    if ratio is not None and 0 < float(ratio.value) < TINY_UPDATE:
        yield Clue(f"the largest update is {float(ratio.value):.2g} of its weight", STRONG + FAIR, ratio.where)
    higher = facts.seen("learning.falls_at_higher")
    if higher is not None and higher.value:
        yield Clue(f"the loss does not move, but falls at {higher.value:g}x the rate", PROOF, higher.where)
    plan = facts.seen("plan.rate")
    if plan is not None and (text := too_low(plan.value)):
        yield Clue(text, PROOF, plan.where, risk=True)
    seen = facts.symptoms
    rate = (
        seen.largest_lr
        if seen.largest_lr is not None
        else (float(facts.context.lr.value) if facts.context.lr is not None else None)
    )
    still = (
        seen.flat
        or seen.chance is not None
        or seen.contradicted("evaluation frozen") is not None
        or (rate is not None and rate <= TINY_RATE and (stands_still(facts) or evaluates_alike(facts)))
    )
    if not still or rate is None or rate <= 0:
        return
    yield Clue("the loss does not move", FAIR, seen.at("start"))
    where = facts.context.lr.where if facts.context.lr is not None else seen.at("start")
    if rate <= TINY_RATE:
        yield Clue(f"the learning rate is at most {rate:g}", FAIR + HINT, where)
    else:
        yield Clue(f"a learning rate of {rate:g} is usual", AGAINST, where)
    if seen.typical_norm is not None and seen.typical_norm > 0:
        yield Clue("gradients are alive", HINT, seen.at("start"))


RULE = Rule(
    code="SF204",
    severity="warning",
    fix="raise the learning rate tenfold until the loss moves, and shorten the warmup",
    beats=("loss-collapse",),
    observes={
        "learning.falls_at_higher": "factor of the rate at which a stalled training falls clearly",
        "update_ratio.largest": "the largest norm of an update over the norm of its weight",
        "plan.rate": "the learning rate that is set, with what it is for: a PlannedRate",
    },
)
