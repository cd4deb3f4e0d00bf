"""The value function is no better than a constant.

## What it means
PPO subtracts a value function from the returns so that advantages have less noise. An explained variance of 0 says that
it is not better than a constant, below 0 that it is worse. Training then works with noise.

## Why it happens
- The value head is not in the optimizer, is frozen, or has a learning rate of 0.
- Returns are of another scale than the head can reach; rewards are not normalized.
- The head reads detached or wrong positions (padding in place of the last token).
- Value clipping holds it where it began.

## How to recognize it
- `critic/vf_explained_var` (verl), `explained_variance` stays at 0 or below after 20 updates and more.
- `critic/vf_loss`, `critic_loss` (OpenRLHF), `loss/value_avg` (trl's PPO) does not fall.

## How to fix it
- Look whether the head's parameters are in the optimizer: `Guard(model, optimizer)` refuses a model whose trainable
  parameters are not.
- verl: `critic.optim.lr=1e-5`, `trainer.critic_warmup=20`, a `critic.cliprange_value` wide enough for the returns.
- OpenRLHF: a critic rate ten times the actor's, `--critic.value_clip`; `--reward.normalize_enable`.

## When it is a false alarm
In the first updates nothing is explained yet. Where all rewards are equal there is nothing to explain. A low but rising
value is learning.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF247",
    severity="warning",
    fix="check that the value head is in the optimizer; normalize rewards, raise the critic's learning rate",
    signals=True,
)
