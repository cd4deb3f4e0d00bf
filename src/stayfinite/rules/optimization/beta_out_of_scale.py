"""The KL coefficient (beta) is far outside the usual range.

## What it means
In DPO and KTO `beta` translates nats into reward: the loss is a sigmoid of beta times the difference of
log-probabilities. At 10 a fifth of a nat over a whole answer saturates it, and gradients vanish before anything is
learned. At 1e-6 the loss stays at ln 2 until answers have moved by a million nats: nothing holds the policy. In GRPO
and PPO the KL term adds to advantages of size 1; above 1 it outweighs every reward.

## Why it happens
A value is copied from another loss (SimPO's beta is 2 to 10, IPO's a regularization of its own), from Adam's betas, or
from a sweep. An exponent is missing.

## How to recognize it
- DPO: `loss` falls to 0 within a few steps while `logps/chosen` hardly moves (beta too high), or stays at 0.693 while
  both log-probabilities run away (too low).
- GRPO: `kl` stays near 0 and `reward` does not move.

## How to fix it
- trl: `DPOConfig(beta=0.1)`, between 0.01 and 0.5; `GRPOConfig(beta=0.0)` to 0.04.
- verl: `actor_rollout_ref.actor.kl_loss_coef=0.001`.
- OpenRLHF: `--model.beta 0.1` (DPO), `--algo.kl.init_coef 0.01`.

## When it is a false alarm
`beta=0.0` is right in GRPO: it trains without a reference. Losses other than the sigmoid's read beta in their own way
and are not judged.
"""

from stayfinite.rules.rule import PROOF, Rule

RULE = Rule(
    code="SF249",
    fix="DPO and KTO: beta=0.1; GRPO: beta=0.0 to 0.04; verl: kl_loss_coef=0.001",
    plans={"plan.beta": PROOF},
)
