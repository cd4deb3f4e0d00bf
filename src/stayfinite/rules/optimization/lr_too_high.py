"""The learning rate is too high: updates overshoot until training breaks.

## What it means
The updates are too large for the loss surface: each step overshoots, the loss climbs, and within some steps the
weights are so large that the forward pass is infinite. The numbers are finite until then, in every precision.

## Why it happens
A recipe's rate belongs to its batch size, its optimizer and its model. Detection recipes are written for 8 GPUs with
2 images each: on one GPU the same rate is 8 times too high. A rate of SGD (0.01 and more) given to Adam is 100 times
too high; a rate for adapters (1e-4 to 1e-3) given to all weights is 10 times too high. Without warmup and clipping
the first hundred steps decide.

## How to recognize it
- The loss or the gradient norm climbs over several points, then is NaN; or one part of the loss is in the thousands
  in the step that fails.
- It breaks while warmup is raising the rate, or when warmup ends.
- detectron2: `FloatingPointError: Loss became infinite or NaN at iteration=...`; `Predicted boxes or scores contain
  Inf/NaN. Training has diverged.` torchvision's reference scripts: `Loss is nan, stopping training`.
- The loss had fallen and is back where it began; a perplexity is cut at exp(100) = 2.7e43; a loss of 1e26 is finite.
- In reinforcement learning: `Expected parameter loc ... but found invalid values`.
- The largest ratio of update to weight is above 0.1 (healthy: about 1e-3).
- The loss falls a little, to ln(classes), and stays there: values so large that a norm makes 0 of them give every
  input the same answer. With a hundredth of the rate the same batch gets far lower in as many steps.
- The loss is 16.1 times the share of wrong answers (Keras), 100 times (BCELoss) or 87.3365 (Caffe): the outputs are
  saturated.

## How to fix it
Divide the rate by 10 and see whether the loss falls; then scale it in proportion to the batch: rate = recipe's rate x
batch / recipe's batch.

- transformers: `learning_rate=2e-5` (full fine-tuning) or `1e-4` (adapters), `warmup_steps=100`, `max_grad_norm=1.0`.
- mmdet: `optim_wrapper.optimizer.lr` times gpus x samples_per_gpu / 16, or `--auto-scale-lr`;
  `optim_wrapper.clip_grad=dict(max_norm=35)`.
- detectron2: `SOLVER.BASE_LR 0.0025 SOLVER.IMS_PER_BATCH 2`, `SOLVER.CLIP_GRADIENTS.ENABLED True`, a longer
  `SOLVER.WARMUP_ITERS`.
- Lightning: `Trainer(gradient_clip_val=1.0)`; `Tuner(trainer).lr_find(model)` gives an upper end.
- DeepSpeed: `"optimizer": {"params": {"lr": 1e-5}}, "gradient_clipping": 1.0`. plain torch:
  `torch.nn.utils.clip_grad_norm_(params, 1.0)`.
- fairseq: `--lr`, `--warmup-updates 4000`, `--clip-norm 1.0`. nanoGPT: `learning_rate`, `warmup_iters`, `grad_clip =
  1.0`.

## When it is a false alarm
A rate is judged with its optimizer and what bounds a step. SGD at 20 is fine where gradients are clipped at 0.25: a
step is at most their product. Norm layers, large batches, soft prompts and small adapters tolerate more.

A loss that is NaN in the very first step, before any update, has another cause: data, loss formula, fp16. One that
falls to next to 0 right before NaN is log(0) or a division by it (SF601): a rate that is too high makes it rise. A
single spike that recovers is a hard batch (SF213).
"""

import itertools
import math

from stayfinite.core.series import RunSeries
from stayfinite.rules.facts import Facts
from stayfinite.rules.optimization.planned_limits import highest, too_high
from stayfinite.rules.optimization.rates import set_too_high
from stayfinite.rules.precision.half_range import half_of
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote, reaches
from stayfinite.rules.signs.course import fell_apart
from stayfinite.rules.signs.going_bad import at_first_step, began_well, told_climb, weights_survived, went_bad
from stayfinite.rules.signs.loss_parts import blown_up_part, lost_part, vanished_part
from stayfinite.rules.symptoms import HUGE_LOSS

LONG_HEALTH = 50
"""Healthy points after which a sudden end has another reason than a setting."""


JUST = 2
"""Good points at a rate that has just been reached."""
LARGE_UPDATE = 0.1
"""Update over weight; about 1e-3 in a healthy run."""


def judge(facts: Facts) -> Clues:
    """Clues: a climb before the end, a rate too high for optimizer or batch; against: a loss that never was good."""
    yield from reaches(
        facts, "update_ratio.largest", LARGE_UPDATE, "an update is {:.3g} times its weight", STRONG + HINT
    )
    plan = facts.seen("plan.rate")
    if plan is not None and (text := too_high(plan.value)):
        limit = highest(plan.value)
        fix = (
            (f"set it well below {limit[0]:g}, warm up over a few hundred steps, clip gradients at 1.0")
            if limit
            else ""
        )
        yield Clue(text, PROOF, plan.where, risk=True, fix=fix)
    steps, slower = facts.seen("learning.falls"), facts.seen("learning.falls_at")
    if steps is not None and not steps.value and slower is not None:
        slowly = f"at {slower.value:g} of the rate from {slower.where}"
        yield Clue(f"on one batch the loss goes from {steps.where}, {slowly}", PROOF, "the learning test")
    seen, broken = facts.symptoms, went_bad(facts)
    high = list(set_too_high(facts))
    yield from _thrown_out(facts)
    if broken is None and seen.healthy:
        yield from _fell_apart(facts, high)
        return
    if broken is None and not (seen.diverges or seen.explodes or seen.absurd or seen.swings):
        if seen.contradicted("evaluation frozen") is not None or (high and seen.said("still")):
            yield from high
        lost, tossed = seen.contradicted("back at start"), seen.contradicted("tosses about")
        yield from quote(lost or tossed, FAIR + HINT)
        return
    if seen.swings:
        yield Clue("the loss jumps up and down by large factors", FAIR + HINT, seen.at("start"))
    where = broken.where if broken is not None else seen.at("largest_loss")
    if seen.absurd and seen.last_loss is not None and seen.last_loss < 0:
        pass  # unbounded below: what overshoots rises
    elif seen.absurd and not _starts_huge(facts):
        largest = seen.largest_loss
        text = "the perplexity is out of all range" if largest is None else f"the loss reaches {largest:.4g}"
        yield Clue(f"{text} after earlier steps", 3.0, seen.where.get("largest_loss", where))
    elif seen.explodes and not _starts_huge(facts) and vanished_part(facts) is None:  # where one wins, the other loses
        yield Clue(_climb(facts), _weight_of_climb(facts, broken is not None), seen.where.get("largest_loss", where))
    yield from quote(blown_up_part(facts), FAIR + HINT)
    diverged = facts.said(
        r"^(?!.*minimum loss scale).*(?:loss became infinite or nan|training has diverged|loss explod|try (?:lowering|"
        r"reducing) the learning rate)"
    )
    yield from quote(diverged, FAIR)
    if seen.diverges and broken is None:
        best, last = seen.best_loss, seen.last_loss
        measured = best is not None and last is not None
        rises = f"from {best:.4g} to {last:.4g} and does not come back" if measured else "far above its earlier level"
        yield Clue(f"the loss rises {rises}", FAIR, seen.at("lowest_loss", "largest_loss"))
    healthy = began_well(facts)
    if broken is not None and healthy is not None:
        unexplained = facts.context.precision is None and half_of(facts) is None and seen.good_before < LONG_HEALTH
        yield Clue(f"{broken.text}, and {healthy}", FAIR if unexplained else HINT, where)
    if seen.lr_at_bad is not None and any(_still_rises(run, seen.lr_at_bad) for run in facts.runs):
        yield Clue(f"the rate was still rising, to {seen.lr_at_bad:g}", 1.5 * HINT, where)
    yield from high
    if broken is not None and facts.said(r"\bparameter \w+\b.{0,160}\binvalid values") is not None:
        yield Clue("the policy's distribution is NaN or inf: updates were too large", 1.5 * HINT, where)
    climbed = told_climb(facts) if not seen.explodes and not seen.diverges and diverged is None else None
    if climbed is not None:
        yield Clue(f"reported to climb: {climbed[0]}", 3.0 if climbed[2] else FAIR, climbed[1])
    yield from _against(facts, where, healthy is not None)


def _thrown_out(facts: Facts) -> Clues:
    """Finite, and beyond return: outputs that are saturated, or answers at random with a batch of one row."""
    seen = facts.symptoms
    saturated, guesses = seen.contradicted("saturated"), seen.contradicted("random order")
    yield from quote(saturated, FAIR + HINT, "{}; updates that are too large cause this", where=seen.at("start"))
    single = facts.mentioned(r"\bbatch[-_ ]?size\W{1,3}[12]\b(?!\d)")
    if (guesses is not None or seen.chance is not None) and single is not None:
        yield Clue(
            f"batch of 1 or 2 rows with a rate tuned for large batches ({single.text.strip()[:60]})", 3.0, single.where
        )


def _fell_apart(facts: Facts, high: list[Clue]) -> Clues:
    """For a finite run: a loss that got worse again, and a rate that is too high."""
    apart = fell_apart(facts)
    if apart is not None:
        yield Clue(apart.text, 3.5, apart.where)
        yield from high


def _still_rises(run: RunSeries, rate: float) -> bool:
    """Whether the rate had just reached this value, from one far below."""
    good = itertools.takewhile(lambda point: point.loss is None or math.isfinite(point.loss), run.points)
    rates = [point.lr for point in good if point.lr is not None]
    return len(rates) > 0 and 0 < 1.2 * rates[0] < rate and rate >= max(rates) and rates.count(rate) <= JUST


def _climb(facts: Facts) -> str:
    seen = facts.symptoms
    if seen.loss_growth >= 4 and seen.good_before >= 2:
        return f"the loss climbs to {seen.loss_growth:.3g}x its lowest before it breaks"
    if seen.norm_growth >= 30:
        return f"the gradient norm climbs to {seen.norm_growth:.3g}x its lowest"
    return f"the loss reaches {seen.largest_loss:.4g}"


def _weight_of_climb(facts: Facts, lost: bool) -> float:
    seen = facts.symptoms
    if not lost:
        return 1.5 * HINT
    return 3.0 if seen.loss_growth >= 4 and seen.good_before >= 2 else FAIR


def _against(facts: Facts, where: str, healthy: bool) -> Clues:
    seen = facts.symptoms
    if at_first_step(facts):
        yield Clue("the first loss, before any update, is already NaN or inf", -STRONG, where)
    if _starts_huge(facts):
        yield Clue("the first loss, before any update, is already huge", -3.0, seen.at("start"))
    if seen.lr_at_bad is not None and seen.lr_at_bad == 0:
        yield Clue("the learning rate is 0 where it breaks", -STRONG, where)
    if weights_survived(facts):
        yield Clue("the loss recovers after the NaN, so the weights are fine", REFUTED, where)
    yield from quote(vanished_part(facts), AGAINST, "{}; updates that are too large make a loss rise")
    if not seen.explodes:
        yield from quote(lost_part(facts), -2.5)
    if seen.zero_loss and not seen.good_losses and not healthy:
        yield Clue("no logged loss was above 0", AGAINST, seen.at("first_zero"))
    if seen.bad_evals and not seen.bad and not seen.bad_losses:
        yield Clue("only the evaluation is NaN or inf", AGAINST, seen.at("bad_eval"))
    rate = seen.largest_lr
    if rate is not None and 0 < rate < 1e-6:
        yield Clue(f"the learning rate is only {rate:g}", AGAINST, where)


def _starts_huge(facts: Facts) -> bool:
    for run in facts.runs:
        first = next((point for point in run.points if point.loss is not None), None)
        if first is not None and first.step is not None and first.step <= 1 and first.loss is not None:
            return math.isfinite(first.loss) and first.loss >= HUGE_LOSS
    return False


RULE = Rule(
    code="SF201",
    fix=(
        "divide the learning rate by 10 (or scale it to the batch size), warm up over a few hundred steps, clip "
        "gradients at 1.0"
    ),
    prior=-3.0,
    beats=("nan-loss", "loss-diverging", "exploding-gradient", "nan-weights", "no-warmup"),
    observes={
        "update_ratio.largest": "the largest norm of an update over the norm of its weight",
        "plan.rate": "the learning rate that is set, with what it is for: a PlannedRate",
        "learning.falls": "whether some steps on one batch bring its loss down",
        "learning.falls_at": "the share of the learning rate at which they do, where they do not at the planned one",
    },
)
