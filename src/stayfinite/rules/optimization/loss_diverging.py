"""The loss climbed far above its best and stays there.

## What it means
The loss had been lower and has risen, window after window, far beyond its noise. All numbers are still finite, but
the run is getting worse. This names what is seen, not why: a likelier cause above it in the list explains it.

## Why it happens
Most often the learning rate is too high for where training is now: too little warmup, a batch that became smaller, a
schedule that rises again. Also: a toxic batch that moved the weights, gradients that pile up, a new phase of the
data, a resume without the optimizer's state, a sign error in a loss term that runs away, a reference or target
network that drifts.

## How to recognize it
- The median loss of the last windows rises each time and ends well above the best one; a plot on a log scale shows it
  at a glance.
- The gradient norm often rises first.

## How to fix it
Return to a checkpoint from before the rise. Then change one thing:

- a rate of a third to a tenth; `max_grad_norm=1.0` (Lightning `gradient_clip_val`, DeepSpeed `"gradient_clipping"`,
  fairseq `--clip-norm`);
- Adam's `beta2` from 0.999 to 0.95 for large batches; a z-loss or query-key norm for large language models;
- pass over the batches at which it began (SF213).

stayfinite's `Guard` reports this live (SF215) and can cut the rate or roll back automatically.

## When it is a false alarm
A new phase (longer sequences, other data, unfrozen layers, a curriculum) correctly lifts the loss. In GANs and
reinforcement learning the loss does not measure progress. A value that is logged as a sum grows with the batch.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: a finite loss that ends far above its best."""
    seen = facts.symptoms
    yield from quote(seen.contradicted("back at start"), STRONG)
    if not seen.diverges or seen.best_loss is None or seen.last_loss is None:
        return
    where = seen.at("largest_loss")
    yield Clue(f"the loss was {seen.best_loss:.4g} and ends at {seen.last_loss:.4g}", STRONG, where)
    if seen.norm_growth >= 3:
        yield Clue(f"the gradient norm grew to {seen.norm_growth:.3g}x its lowest", HINT, where)
    if seen.points >= 20:
        yield Clue(f"over {seen.points} points", HINT, seen.at("start"))


RULE = Rule(
    code="SF215",
    severity="warning",
    fix="return to a checkpoint from before the rise and lower the learning rate; clip gradients at 1.0",
    prior=-3.5,
    says={
        r"loss is too high, stopping training": PROOF,
        r"divergence threshold reached": PROOF,
    },
)
