"""The learning rate is zero.

## What it means
Every update is multiplied by 0: the model stays as it is, whatever the gradients say. The loss looks alive, because
batches differ, but it does not fall.

## Why it happens
The schedule has run out: it was built for fewer steps than are trained (steps counted per epoch, per device or before
accumulation), and stays at 0 from there on. Or warmup is longer than the run, or the scheduler is never stepped after
a warmup that begins at 0. Or a command line gave 0, or a config's value was lost as text. With a loss scaler that
skips every step, DeepSpeed's scheduler never starts.

## How to recognise it
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

from __future__ import annotations

import re
from collections.abc import Iterator

from stayfinite.rules.facts import Facts
from stayfinite.rules.plans import REMARKS, planned
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Rule

OFTEN = 4
"""Lines that are more than the first steps of a warmup."""

PRINTED = r"\b(?:lr|learning[_ ]rate|get_last_lr\(\))\W{1,4}\d"
_ZERO = re.compile(r"\b(?:lr|learning[_ ]rate|get_last_lr\(\))\W{1,4}0(?:\.0*)?(?:e[-+]?0+)?(?![\d.e])", re.IGNORECASE)


def judge(facts: Facts) -> Iterator[Clue]:
    """Zero on line after line, with gradients that are alive; weak where the run is lost for another reason."""
    probed = facts.seen("optimizer.lr")
    if probed is not None and float(probed.value) == 0:
        yield Clue("the optimizer's learning rate is 0 after warmup's first steps", PROOF, probed.where)
    yield from planned(facts, "plan.lr_zero")
    seen, lr = facts.symptoms, facts.context.lr
    if lr is not None and lr.value == 0:
        yield Clue(f"the settings say so ({lr.text})", STRONG, lr.where, risk=not seen.flat)
    factor = facts.mentioned(r"\b\w*LR\([^)]*\bgamma ?= ?0(?:\.0*)?\s*[,)]")
    if factor is not None:
        yield Clue(f"a schedule that multiplies the rate by 0: {factor[1].strip()[:100]}", STRONG, factor[0], risk=True)
    if not seen.lr_zero:
        yield from _printed(facts)
        return
    where = seen.where.get("zero_lr", "")
    if seen.zero_lrs == seen.lrs:
        yield Clue(f"the learning rate is 0 at all {seen.lrs} points", STRONG if seen.lrs >= 3 else FAIR + HINT, where)
    else:
        yield Clue(f"the learning rate is 0 at the last {seen.trailing_zero_lrs} of {seen.lrs} points", STRONG, where)
    if seen.good_losses and seen.good_losses >= seen.bad:
        yield Clue("losses are alive and nothing is learned from them", FAIR, where)
    if seen.bad or seen.bad_losses:
        yield Clue(
            "the run is lost for another reason, and no step is taken", -FAIR - HINT, seen.where.get("first_bad", "")
        )
    if seen.skipped:
        yield Clue(
            "a loss scaler skips the steps, so that the schedule does not start",
            AGAINST,
            seen.where.get("first_skip", ""),
        )
    early = facts.said(r"tried to get lr value before scheduler")
    if early is not None and seen.lrs <= 3:
        yield Clue("the schedule may just not have started", AGAINST, early.where)


def _printed(facts: Facts) -> Iterator[Clue]:
    """A rate of 0 that a script prints in its own way, again and again, while the loss does not move."""
    seen = facts.symptoms
    zero = [each for each in facts.all_said(PRINTED) if _ZERO.search(each.text)]
    other = [each for each in facts.all_said(PRINTED) if not _ZERO.search(each.text)]
    still = seen.first_loss is not None and seen.last_loss is not None and seen.last_loss >= 0.98 * seen.first_loss
    if sum(each.count for each in zero) >= OFTEN and not other and (still or not seen.points):
        yield Clue(f"printed again and again: {zero[0].text.strip()[:80]}", STRONG, zero[0].where)
        if still and seen.points >= OFTEN:
            yield Clue(f"the loss stays at {seen.last_loss:.4g}", 1.5 * HINT, seen.where.get("start", ""))


RULE = Rule(
    code="SF202",
    slug="lr-zero",
    severity="error",
    title="The learning rate is 0: nothing is learned.",
    fix="set a learning rate, and give the schedule the true number of warmup and total updates",
    judge=judge,
    page=__doc__,
    beats=("loss-collapse", "lr-too-low"),
    observes={"optimizer.lr": "the learning rate that the optimizer uses", "plan.lr_zero": REMARKS},
)
