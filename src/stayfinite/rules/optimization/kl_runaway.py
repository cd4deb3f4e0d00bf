"""KL to the reference keeps growing.

## What it means
The KL divergence to the reference model measures how far the policy has moved, in nats per token. At 1 nat the policy
gives its tokens e times the probability that the reference gives them. A healthy run settles well below that. When the
KL keeps growing, the policy writes text that the reference would never write. The loss stays finite, and the reward may
even rise for a while.

## Why it happens
- The learning rate is too high for reinforcement learning: a rate from supervised fine-tuning (1e-5, 1e-4) on a whole
  model.
- The KL term is missing or too weak for a reward that can be exploited (`beta=0.0`, `use_kl_loss=False`).
- The reference is wrong: another checkpoint, or one that was loaded without the adapter the policy started from.
- A few tokens with huge importance ratios made one bad update.

## How to recognize it
- `kl` (trl), `actor/kl_loss` (verl) or `kl` (OpenRLHF) above 1 and still growing, often by a factor per line.
- `entropy` and `reward` fall with it; answers repeat themselves or turn into another language.
- A KL far above 0 in the very first line means that policy and reference are different models.

## How to fix it
Return to a checkpoint from before the rise, then:

- trl: `GRPOConfig(learning_rate=1e-6, beta=0.04, max_grad_norm=0.2)`.
- verl: `actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.use_kl_loss=True
  actor_rollout_ref.actor.kl_loss_coef=0.001`, then raise the coefficient.
- OpenRLHF: `--algo.kl.init_coef 0.01` (older releases: `--init_kl_coef`), a lower actor rate.
- A home-made loop: `guard.step(loss, signals=stayfinite.rl.signals(...))` reports it live.

## When it is a false alarm
A KL that grows to a plateau is how training moves; with `beta=0.0` a plateau of some tenths of a nat is usual. trl's
PPO and KTO log the KL of whole answers, where 10 is ordinary: those numbers are not judged.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF240",
    fix="lower the learning rate, raise the KL coefficient (trl: beta, verl: kl_loss_coef), return to a checkpoint",
    signals=True,
    beats=("entropy-collapse", "reward-falls", "length-hacking", "reward-on-truncated"),
)
