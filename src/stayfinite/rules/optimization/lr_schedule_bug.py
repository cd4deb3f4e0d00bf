"""The learning rate does not follow its schedule.

## What it means
The rate in the log is not the one that the settings describe: it rises where it should fall, stays constant, ends too
early, begins too high, or is another one altogether.

## Why it happens
`scheduler.step()` is called per epoch for a schedule counted in steps, or per batch for one counted in epochs; before
`optimizer.step()`; twice; or also on steps that a loss scaler skipped. The total is wrong by the accumulation factor
or the number of processes. A cosine runs beyond its `T_max` and comes up again. Two places set the rate: DeepSpeed's
own scheduler (whose `warmup_max_lr` is 0.001 unless given) next to the Trainer's. On resume the scheduler restarts.

## How to recognize it
- `Tried to step 1001 times. The specified number of total steps is 1000` (OneCycleLR).
- `Detected call of lr_scheduler.step() before optimizer.step()`: harmless where a scaler skipped the first step, else
  the order is wrong.
- `param 'initial_lr' is not specified in param_groups[0] when resuming an optimizer`.
- The rate in the log: a second rise, a negative value, a value far above the one that was set, a constant where a
  decay was asked. After three quarters of a cosine to 0 the rate is 15% of its peak; of a linear decay, 25%.
- A rate of exactly 0.001 under DeepSpeed, whatever was set: the default of its `WarmupLR`.
- `ZeroDivisionError` or a `complex` number inside a schedule: its length is 0, or it is stepped beyond its end.

## How to fix it
- Order in plain torch: `optimizer.step()`, then `scheduler.step()`, once for each update; with a scaler, step the
  schedule only if `scaler.get_scale()` did not fall.
- OneCycleLR: `steps_per_epoch=len(loader) // accumulation`, or `total_steps`. CosineAnnealingLR: `T_max` in the unit
  in which it is stepped.
- Lightning: `"interval": "step"` or `"epoch"` in the scheduler's dict says the unit.
- accelerate: prepare the scheduler; it steps once per process unless `split_batches=True` or
  `step_scheduler_with_optimizer=False`.
- DeepSpeed with transformers: `"auto"` for `warmup_min_lr`, `warmup_max_lr`, `warmup_num_steps`, or no scheduler
  section at all.
- Resume: `scheduler.load_state_dict(...)`; or build it with `last_epoch=step` and `initial_lr` in each group.

## When it is a false alarm
Cosine with restarts, cyclic and one-cycle schedules rise again by design; layer-wise rates differ from the one that
was set.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.optimization.planned_rate import departure
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

RISES_BY_DESIGN = r"restart|cycl|onecycle|one_cycle|triangular|\bwsd\b|plateau|noam_hold|tri_stage"
BEYOND_END = r"tried to step \d+ times|number of total steps is \d+"
CANNOT_BE_BUILT = (
    r"expected positive integer (?:total_steps|epochs|steps_per_epoch)|you must define either total_steps|"
    r"ReduceLROnPlateau conditioned on metric .{0,60}not available|not supported between instances of 'complex'|"
    r"must be real number, not complex|invalid learning rate: -|"
    r"step\(\) missing 1 required positional argument: '(?:metrics|epoch)'"
)
"""Schedulers that reject their arguments, or raise a negative number to a power past their end."""
IN_A_SCHEDULE = r"lr_lambda|lr_scheduler|get_lr\b|scheduler\.py"

DEAD_RATE = r"\b(?:\w+_)?(?:lr|learning[ _]rate)(?:_\w+)?\W{1,4}\d[\d.]*e-(?:[3-9]\d|\d{3})\b"
"""Below 1e-30, of one group of parameters: decayed far beyond the end."""

FALLS_TO_ZERO = (
    r"\b(?:goes|went|decay\w*|drop\w*|fall\w*|fell|decreas\w+|reduc\w+)\b[^.;\n]{0,16}\b(?:0|zero)\b"
    r"(?=.*\b(?:first|already|before|within|too|early|soon)\b)"
)
_BRANCH = lazy_regex(r"\s*(if|elif)\s+\(?(\w*(?:epoch|step|iter)\w*)\s*(>=?|<=?)\s*(\d+)\)?\s*:")
_SETS_RATE = lazy_regex(r"\b(?:lr|learning_rate|rate)\b\s*[*/]?=")
VANISHED = 1e-8
"""Ratio to the initial rate that no schedule should reach."""


def judge(facts: Facts) -> Clues:
    """Clues: a scheduler's error, or a logged rate of an impossible shape."""
    yield from quote(facts.said(BEYOND_END), PROOF)
    refused = facts.said(CANNOT_BE_BUILT)
    divided = facts.said(r"ZeroDivisionError") if facts.said(IN_A_SCHEDULE) is not None else None
    if (wrong := refused or divided) is not None:
        yield Clue(wrong.text, PROOF, wrong.where)
    order = facts.said(r"lr_scheduler\.step\(\)`? before `?optimizer\.step\(\)")
    sick = not facts.symptoms.healthy
    if order is not None:
        skipped = facts.context.half is not None or facts.symptoms.skipped > 0
        yield Clue(order.text, HINT / 2 if skipped else FAIR, order.where, risk=True)
    yield from quote(facts.said(r"the learning rate is (?:nan|-?inf) at step \d+"), PROOF)
    yield from quote(
        facts.symptoms.said("rate still") or facts.symptoms.said("rate off"),
        STRONG,
        "reported: the rate does not follow its schedule: {:.100}",
    )
    spent_early = facts.symptoms.said("rate 0")
    if spent_early is not None and re.search(FALLS_TO_ZERO, spent_early.text, re.IGNORECASE):
        yield Clue(
            f"reported: the rate falls to 0 too soon: {spent_early.text[:100]}", STRONG + HINT, spent_early.where
        )
    start, now = facts.settings.value("initial_lr"), facts.settings.find("lr")
    if (
        now is not None
        and isinstance(start, float)
        and isinstance(now.value, float)
        and 0 < now.value < VANISHED * start
    ):
        yield Clue(f"the rate fell from {start:g} to {now.value:.2g}", STRONG + HINT, now.where)
    yield from quote(
        facts.symptoms.contradicted("rate spent"), STRONG + HINT, "{}: its schedule is shorter than the run"
    )
    yield from quote(_unreachable(facts), STRONG + HINT, "this branch of the schedule is never taken: {}")
    yield from quote(facts.said(DEAD_RATE), STRONG + HINT, "this rate has no effect: {}")
    yield from _shape(facts, sick)
    off = departure(facts)
    if off is not None:
        yield Clue(
            f"the rate is {off.logged:.3g} after {off.share:.0%} of the run; the schedule ({off.kind}) has about "
            f"{off.planned:.2g}",
            STRONG + HINT,
            off.where,
        )
        if facts.context.deepspeed is not None:
            yield Clue("the DeepSpeed config may override the schedule", HINT, facts.context.deepspeed.where, risk=True)


def _unreachable(facts: Facts) -> Line | None:
    """An `elif epoch >= 160` after `if epoch >= 120`, before a line that sets the rate."""
    before: re.Match[str] | None = None
    hidden: Line | None = None
    for where, text in facts.lines:
        found = _BRANCH.match(text)
        if hidden is not None and _SETS_RATE.search(text):
            return hidden
        if found is None:
            continue
        hidden = None
        if found[1] == "elif" and before is not None and found.group(2, 3) == before.group(2, 3):
            covered = int(found[4]) - int(before[4])
            hidden = Line(where, text) if (covered >= 0 if found[3][0] == ">" else covered <= 0) else None
        before = found
    return None


def _shape(facts: Facts, sick: bool) -> Clues:
    by_design = facts.mentioned(RISES_BY_DESIGN) is not None
    for run in facts.runs:
        broken = next((row for row in run.column("lr") if not math.isfinite(row[1])), None)
        if broken is not None:
            yield Clue(f"the learning rate is {broken[1]:g} at step {broken[0]:g}", PROOF, run.where(broken[2]))
        rows = [(step, value, line) for step, value, line in run.column("lr") if math.isfinite(value)]
        if len(rows) < 3:
            continue
        negative = next((row for row in rows if row[1] < 0), None)
        if negative is not None:
            yield Clue(f"the learning rate is {negative[1]:g}", PROOF, run.where(negative[2]))
        again = None if by_design else _second_rise(rows)
        if again is not None:
            # A cosine or linear schedule ends at 0; past its end a cosine rises again.
            ended = again[0] <= 0.02 * again[1] and facts.settings.search(r"\b(?:cosine|linear)(?!ly)") is not None
            yield Clue(
                f"the rate falls and rises again, from {again[0]:g} to {again[1]:g}",
                STRONG if ended else 3.0,
                run.where(again[2]),
                risk=not sick and not ended,
            )


def _second_rise(rows: list[tuple[float, float, int]]) -> tuple[float, float, int] | None:
    """``(lowest, later rate, line)`` if the rate peaked, fell below half and rose again in one run."""
    peak = lowest = 0.0
    for (before, _, _), (step, value, line) in zip([rows[0], *rows], rows, strict=False):
        if step < before:
            peak = lowest = 0.0
        if value > peak and lowest == 0.0:
            peak = value
        elif value < 0.5 * peak and (lowest == 0.0 or value < lowest):
            lowest = max(value, 1e-30)
        elif lowest and value > 4 * lowest and value > 0.25 * peak:
            return lowest, value, line
    return None


RULE = Rule(
    code="SF203",
    fix="step the schedule once per update, after the optimizer, and set its length in that unit",
    proofs={
        # How the schedule, run ahead without training, breaks its shape; empty if not.
        "schedule.breaks_shape": "the schedule is broken: {}",
        # Learning rates of the optimizer, where one is not finite.
        "optimizer.lr_not_finite": "the learning rate is NaN or inf: {}",
    },
    beats=("lr-zero", "lr-too-low", "loss-diverging"),
    mild_plans={"plan.schedule": PROOF, "plan.warmup_too_long": PROOF},
    warns={
        r"steps contains values larger than \S*max_iter": STRONG + FAIR,
        r"total_num_steps \d+ is less than warmup_num_steps": STRONG + FAIR,
        r"`?\w*LR`? scheduler is using 'interval': 'epoch'": STRONG + HINT,
        r"using unknown warmup_type": STRONG + HINT,
    },
)
