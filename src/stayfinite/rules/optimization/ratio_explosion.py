"""Importance ratios explode: samples are stale or from another model.

## What it means
Each token is weighted by its probability under the policy now over that when it was sampled. For fresh samples this
ratio is 1 on average. A mean far from 1, single ratios in the thousands, or most tokens beyond the clip say that the
policy has left the one that sampled. A few tokens then carry the whole gradient, or the clip removes it.

## Why it happens
- Stale samples: an asynchronous sampler that lags many updates behind, or a buffer that is used too often.
- Too many updates per batch (`num_iterations`, `ppo_epochs`, `max_epochs`), too high a learning rate.
- Old log-probabilities were computed by another model: other dtype, dropout on, another temperature.
- The clip is so wide that it clips nothing, and the KL coefficient is 0: `stayfinite check` reads both.

## How to recognize it
- `clip_ratio/region_mean` (trl), `actor/pg_clipfrac` (verl), `ppo_clip_ratio` (OpenRLHF) rises above 0.5; `val/ratio`
  (trl's PPO) leaves 1.
- `guard.step(loss, signals=stayfinite.rl.signals(...))`: `ratio_mean`, `ratio_max`, `clipped`, `lag`.

## How to fix it
- trl: `num_iterations=1`, fewer `steps_per_generation`, a lower `learning_rate`.
- verl: `actor_rollout_ref.actor.ppo_epochs=1`, a `ppo_mini_batch_size` nearer to `train_batch_size`.
- OpenRLHF: `--train.max_epochs 1`; in asynchronous training a shorter queue.
- Cap ratios (truncated importance sampling), and push new weights to the sampler more often.

## When it is a false alarm
Single large ratios in the first steps are noise. Losses that clip per sequence with a narrow range (GSPO) clip many
tokens from the start: a high share that does not rise is not judged.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: an update that moved the policy far."""
    yield from quote(facts.symptoms.contradicted("policy leaps"), STRONG + FAIR)


RULE = Rule(
    code="SF244",
    fix="resample more often, take fewer updates per batch, lower the learning rate, cap the ratios",
    beats=("kl-runaway", "reward-falls"),
    signals=True,
    plans={"plan.unclipped": PROOF},
)
