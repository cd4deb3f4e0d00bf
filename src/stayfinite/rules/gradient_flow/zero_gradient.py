"""Every gradient is exactly zero.

## What it means
The gradient norm is 0.0 step after step. Not small: zero. Weights change by weight decay at most. It is a symptom
with a short list of causes; this finding is shown when none of them is found.

## Why it happens
- The loss does not depend on the weights: clamped to a constant, built from detached values (SF401), all labels
  masked (SF302), all advantages zero in GRPO (SF214).
- Everything that feeds the loss is frozen (SF402), or checkpointing lets nothing through (SF403).
- fp16 without a scaler: gradients below about 3e-8 are rounded to 0 (SF105).
- A dead layer (SF409): ReLU units that are off for every sample, a saturated sigmoid or softmax in front of a clamp.
- LoRA with both matrices at 0, a zero-initialized gate on both sides of a product.
- The framework reports it wrongly: under DeepSpeed some versions logged a norm of 0, and a norm that is read after
  `zero_grad()` is always 0.

## How to recognize it
- `grad_norm: 0.0` in most logged steps. With `loss: 0.0`, look at labels and rewards; with an ordinary loss that
  moves, doubt the norm; with an ordinary loss that does not move, look for detached, frozen or dead parts.
- After one backward look at `p.grad` of all parameters. None everywhere: cut or frozen. Zeros everywhere: masked,
  clamped or underflow.

## How to fix it
- Find the first tensor from the loss downwards whose gradient is 0: `t.retain_grad()` on the logits, then on the last
  hidden state.
- Labels: count those that are not -100. Rewards: they must differ within a group.
- Precision: bf16, or fp16 with a scaler.
- Measure before `optimizer.zero_grad()`; under DeepSpeed take `engine.get_global_grad_norm()`.

## When it is a false alarm
A warm-up phase that only fills buffers, a discriminator that has won, a step of GRPO whose groups all agree: single
zeros are not a finding. A loss of exactly 0 that was earned (a separable toy problem with a hinge loss) correctly has
no gradient.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, Clue, Clues, Rule


def judge(facts: Facts) -> Clues:
    """Clues: norms of exactly 0 at most points."""
    share = facts.seen("gradient.zero_share")
    if share is not None and share.value == 1.0:
        yield Clue("every gradient of a step is exactly 0", PROOF, share.where)
    symptoms = facts.symptoms
    if symptoms.zero_norms == 0 or symptoms.zero_norms * 2 < symptoms.points:
        return
    many = symptoms.zero_norms >= 2
    told = symptoms.said("zero gradient")
    if told is not None:
        yield Clue(f"reported: a gradient of 0: {told.text[:100]}", 3.5, told.where)
    else:
        text = f"the gradient norm is exactly 0 in {symptoms.zero_norms} of {symptoms.points} points"
        yield Clue(text, 3.5 if many else 2.5, symptoms.at("start"))
    if symptoms.flat:
        yield Clue("and the loss does not move", FAIR)
    elif symptoms.good_losses and (symptoms.good_losses < 8 or symptoms.best_loss is None):
        yield Clue("with a normal loss", HINT)


RULE = Rule(
    code="SF411",
    severity="warning",
    fix=("check for a detached or clamped loss, masked labels, equal rewards, frozen parameters, or fp16 underflow"),
    observes={"gradient.zero_share": "the share of gradient elements that are exactly 0, 0 to 1"},
)
