"""A target is out of step: a stale or trained copy, or unshifted targets.

## What it means
Some trainings keep a copy of the model that follows it slowly: the target network of Q-learning, the momentum encoder
of BYOL or MoCo, an exponential moving average for evaluation. Here the copy stays as it was made, or it is trained
itself.

## Why it happens
- The update binds a local name: `p_ema = decay * p_ema + ...` inside a loop changes no tensor.
- The condition is never met: a counter that restarts in every episode, an `and` for an `or`.
- `load_state_dict` is called on the wrong one of the two, or on a copy that is thrown away.
- The copy's parameters are in the optimizer: it was built from both models, or the copy was made without
  `requires_grad_(False)`.
- A language model is given what it has to predict: targets that are a copy of the inputs, not shifted by one. It
  learns to copy; the loss falls to 0, and text that it writes repeats one letter.

## How to recognize it
- The evaluation of the EMA model prints the same number each time.
- `all(torch.equal(a, b) for a, b in zip(target.parameters(), at_the_start))` after thousands of steps.
- `stayfinite doctor train.py` compares the copy with the first weights of the model.

## How to fix it
`p_ema.lerp_(p, 1 - decay)` or `p_ema.mul_(decay).add_(p, alpha=1 - decay)` under `torch.no_grad()` after each step; or
`target.load_state_dict(model.state_dict())` every n steps, counted over the whole run. Give the optimizer the
model's parameters only.

## When it is a false alarm
A reference that must not move, as the frozen model of DPO or of distillation, stays as it is by design.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF232",
    fix="update the copy in place after each step: p_ema.lerp_(p, 1 - decay), or load_state_dict every n steps",
    proofs={
        # Which copy, and what it does instead, in words; empty where it follows.
        "model.copy_out_of_step": "{}",
    },
    beats=("metric-stuck",),
)
