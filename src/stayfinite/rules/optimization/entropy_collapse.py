"""The policy's entropy collapsed while the reward did not rise.

## What it means
Entropy is the freedom of choice that the policy keeps, in nats per token. Near 0 sampling is greedy: all answers of a
group are the same, advantages vanish, and nothing new is ever tried. If the reward has not risen by then, it will not.

## Why it happens
- The learning rate is too high, or too many updates are taken on one batch.
- The upper clip holds back unlikely tokens (clip 0.2 on both sides), so that only likely ones grow.
- Sampling is colder than 1.0, or `top_p` and `top_k` cut the tail.
- The reward has an answer that always pays a little, and the policy settles on it.

## How to recognize it
- `entropy` (trl), `actor/entropy` (verl) falls to less than a tenth of its first level and below 0.05, while the reward
  stays.
- `frac_reward_zero_std` rises towards 1; answers of a group are the same text.

## How to fix it
Return to a checkpoint from before the fall, then:

- trl: `GRPOConfig(temperature=1.0, top_p=1.0, epsilon_high=0.28, learning_rate=1e-6)`, `entropy_coef` above 0.
- verl: `actor_rollout_ref.actor.clip_ratio_high=0.28`, `actor_rollout_ref.actor.entropy_coeff=0.001`,
  `actor_rollout_ref.rollout.temperature=1.0`.
- OpenRLHF: `--actor.eps_clip_low_high 0.2 0.28`, `--rollout.temperature 1.0`.

## When it is a false alarm
Entropy falls in every run that learns, and may end near 0 when the task is solved and the reward has risen with it.
Supervised and preference training sample nothing: their entropy is not judged.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF241",
    fix="lower the learning rate, sample at temperature 1.0, raise the upper clip (trl: epsilon_high=0.28)",
    signals=True,
    beats=("reward-falls",),
)
