"""The learning rate is 0: nothing is learned.

## What it means
Every update is multiplied by 0: the model stays as it is, whatever the gradients say. The loss looks alive, because
batches differ, but it does not fall.

## Why it happens
The schedule has run out: it was built for fewer steps than are trained (steps counted per epoch, per device or before
accumulation), and stays at 0 from there on. Or warmup is longer than the run, or the scheduler is never stepped after
a warmup that begins at 0. Or a command line gave 0, or a config's value was lost as text. With a loss scaler that
skips every step, DeepSpeed's scheduler never starts.

## How to recognize it
- `learning_rate: 0.0` on many lines, not only the first (warmup) or the last (end of decay).
- DeepSpeed: `tried to get lr value before scheduler/optimizer started stepping, returning lr=0` again and again.
- The rate falls to 0 in the middle of the run.

## How to fix it
- transformers: set `learning_rate`; leave the schedule to `max_steps`/`num_train_epochs`; `warmup_steps` below the
  number of updates.
- Own scheduler: `num_training_steps = ceil(len(loader) / accumulation) * epochs`, and `scheduler.step()` once for
  each update.
- accelerate: a prepared scheduler advances once per process; give it the total over all of them, or
  `Accelerator(step_scheduler_with_optimizer=False)`.
- Lightning: `{"scheduler": s, "interval": "step"}` for a schedule in steps; `self.trainer.estimated_stepping_batches`
  is its length.
- DeepSpeed: `"scheduler": {"params": {"warmup_max_lr": 1e-5, "total_num_steps": N}}`; look for OVERFLOW lines first.

## When it is a false alarm
The first line of a warmup and the last line of a decay to zero are right. A rate printed with few digits (`lr:
0.000000`) may be 1e-7. Frozen parameter groups may have rate 0 by intent.
"""

import re

from stayfinite.rules.facts import Facts
from stayfinite.rules.optimization.lr_schedule_bug import FALLS_TO_ZERO
from stayfinite.rules.rule import FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote

OFTEN = 4
"""More lines than the start of a warmup has."""


def judge(facts: Facts) -> Clues:
    """Clues: zero on many lines with live gradients; weak if the run failed for another reason."""
    probed = facts.seen("optimizer.lr")
    if probed is not None and float(probed.value) == 0:
        yield Clue("the optimizer's learning rate is 0 after warmup's first steps", PROOF, probed.where)
    seen, lr = facts.symptoms, facts.context.lr
    if lr is not None and lr.value == 0:
        stands = seen.flat or seen.chance is not None
        yield Clue(f"set to 0 in the settings ({lr.text})", PROOF if stands else STRONG, lr.where, risk=not stands)
    yield from quote(
        facts.mentioned(r"\b\w*LR\([^)]*\bgamma ?= ?0(?:\.0*)?\s*[,)]"),
        STRONG,
        "a schedule that multiplies the rate by 0: {:.100}",
        risk=True,
    )
    if seen.lrs > 1 and not seen.zero_lrs:
        yield Clue("no logged learning rate is 0", REFUTED)
    told = seen.said("rate 0")
    if told is not None and not re.search(FALLS_TO_ZERO, told.text, re.IGNORECASE):
        yield Clue(f"reported: the rate is 0: {told.text[:100]}", STRONG, told.where)
    if not seen.lr_zero:
        return
    where = seen.at("zero_lr")
    if seen.zero_lrs == seen.lrs:
        yield Clue(f"the learning rate is 0 at all {seen.lrs} points", STRONG if seen.lrs >= 3 else FAIR + HINT, where)
    if seen.good_losses and seen.good_losses >= seen.bad:
        yield Clue("losses are normal, but nothing is learned", FAIR, where)


RULE = Rule(
    code="SF202",
    fix="set a learning rate, and give the schedule the true number of warmup and total steps",
    beats=("loss-collapse", "lr-too-low"),
    observes={"optimizer.lr": "the learning rate that the optimizer uses"},
    plans={"plan.lr_zero": PROOF},
)
