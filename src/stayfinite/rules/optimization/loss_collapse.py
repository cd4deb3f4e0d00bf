"""The loss is stuck at one value.

## What it means
The loss is exactly 0, or exactly the same number, step after step. It no longer depends on the model or the data, so
that training teaches nothing. This names what is seen, not why: a likelier cause above it in the list explains it.

## Why it happens
0: every label is masked, NaN losses were filtered from the log (transformers prints them as 0.0), the target is in
the input, rewards are all equal. A constant: the output ignores the input (dead units, a saturated sigmoid, a clamp),
the loss is detached, the learning rate is 0, parameters are frozen or not in the optimizer. ln(number of classes) is
the loss of a model that knows nothing.

## How to recognize it
- `loss: 0.0` with `grad_norm` 0.0 or nan from the first lines on.
- The same digits on every line, for batches that differ.

## How to fix it
Take one batch and look:

- `(labels != -100).sum()`: 0 means SF302. `loss.requires_grad`: False means SF401. `torch.isfinite(logits).all()`:
  False means 1xx or 6xx.
- Do two different batches give different logits? If not, the input does not arrive, or units are dead (SF409).
- transformers: `logging_nan_inf_filter=False` shows NaN as NaN; `logging_steps=1`.
- Try to learn ten rows by heart, without dropout: the loss must go to almost 0, and not before some dozens of steps.

stayfinite's `Guard` reports this live (SF216).

## When it is a false alarm
In GRPO the printed loss is 0.0 while gradients and rewards are alive. A separable toy problem does reach 0. Losses
that are printed with few digits look constant.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, Clues, Rule


def judge(facts: Facts) -> Clues:
    """Clues: a sudden loss of 0 or a constant loss; live gradients count against it."""
    seen = facts.symptoms
    if seen.zero_loss:
        where = seen.at("first_zero", "summary")
        yield Clue(f"the loss is 0 at {seen.zero_losses} points", FAIR + HINT, where)
        if seen.zero_norms:
            yield Clue("and the gradient norm is 0", HINT, where)
        elif seen.bad_norms or seen.bad_losses or seen.bad_evals:
            yield Clue("NaN next to it: the 0 is a filtered NaN", -HINT, where)
        rewards = facts.metric("reward", "reward_std", "rewards/mean", "kl", "rewards/accuracies")
        if rewards:
            yield Clue("with rewards, the printed loss is near 0 normally", -STRONG, rewards[0][1])
    elif seen.flat or seen.chance is not None:
        guess = f", chance level for {seen.chance} classes" if seen.chance is not None else ""
        told = seen.said("still")
        stays = seen.last_loss is not None and not told
        measured = f"the loss stays at {seen.last_loss:.6g} over {seen.points} points{guess}" if stays else ""
        yield Clue(measured or (told.text if told else "the loss is constant"), FAIR + HINT, seen.at("start"))
    else:
        return
    if seen.typical_norm is not None and seen.typical_norm > 0 and not seen.bad_norms:
        yield Clue("gradients are alive", -STRONG if seen.zero_loss else -FAIR, seen.at("start"))


RULE = Rule(
    code="SF216",
    severity="warning",
    fix="inspect one batch: unmasked labels, finite logits, a loss that requires grad, a rate above 0",
    prior=-4.5,
)
