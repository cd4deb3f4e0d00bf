"""Training starts at the full learning rate and breaks in its first steps.

## What it means
Training begins at the full rate. Adam's estimates of the gradient's size are then drawn from a single batch: early
updates are as large as the rate allows in every coordinate, whatever the gradient. Within the first hundred steps the
loss jumps up, or is lost.

## Why it happens
`warmup_steps` is 0 by default in many frameworks. A new head, a new embedding, post-norm transformers, large batches
and a high rate make the first gradients large and inconsistent. After a resume without optimizer states the same
happens again.

## How to recognize it
- Warmup is 0, the optimizer is Adam or similar, and the loss or the gradient norm explodes within the first
  hundred steps.
- The same run with a lower rate, or with warmup, passes that point.

## How to fix it
- transformers: `warmup_steps=500`, or a share of all steps (`warmup_ratio=0.03`; newer versions take
  `warmup_steps=0.03`).
- fairseq: `--lr-scheduler inverse_sqrt --warmup-updates 4000`. Megatron: `--lr-warmup-fraction 0.01`.
- DeepSpeed: `"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 500}}`.
- mmengine: `dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=500)`.
- plain torch: `SequentialLR(opt, [LinearLR(opt, 1e-3, total_iters=500), CosineAnnealingLR(opt, n)],
  milestones=[500])`.
- RAdam, or a pre-norm model, needs less of it.

## When it is a false alarm
Fine-tuning at 1e-5 often does well without warmup. SGD needs it for large batches only. A loss that is lost in the
very first step has another cause.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.going_bad import went_bad

EARLY_STEPS = 300
"""Steps within which a missing warmup shows."""


def judge(facts: Facts) -> Clues:
    """Clues: warmup disabled, and an explosion early in the run."""
    seen, warmup, broken = facts.symptoms, facts.context.warmup, went_bad(facts)
    if warmup is None or warmup.value != 0 or (broken is None and not seen.diverges):
        return
    first = seen.first_bad
    step = first.step if first is not None else None
    yield Clue(f"there is no warmup ({warmup.text})", FAIR, warmup.where, risk=True)
    where = seen.at("first_bad", "largest_loss")
    if step is not None and 1 < step <= EARLY_STEPS and seen.good_before >= 1:
        yield Clue(f"the run breaks at step {step:.0f}", FAIR, where)
    elif step is not None and 1 < step <= EARLY_STEPS and step != (first.epoch if first is not None else None):
        yield Clue(f"the run breaks by step {step:.0f}", 1.5 * HINT, where)
    optimizer = facts.context.optimizer
    if optimizer is not None and "adam" in str(optimizer.value).lower():
        yield Clue(f"the optimizer is adaptive ({optimizer.text})", HINT, optimizer.where, risk=True)


RULE = Rule(
    code="SF205",
    severity="warning",
    fix="warm up the learning rate over a few hundred steps (warmup_steps=500)",
    prior=-4.5,
    beats=("nan-loss", "loss-diverging", "exploding-gradient"),
    plans={"plan.no_warmup": STRONG + HINT},
)
