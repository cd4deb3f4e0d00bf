"""The reference is the policy itself, or trains with it.

## What it means
The reference is a frozen copy of the model as it was before training. KL and DPO's rewards are measured against it. If
it is the policy under a second name, the KL is exactly 0 whatever the policy does: the term that should hold it holds
nothing. In DPO both log-ratios are 0 and the loss stays at ln 2.

## Why it happens
- `ref_model = model` binds a second name to the same weights; it copies nothing.
- The optimizer was given the parameters of both models.
- Under an adapter the reference is computed with the adapter still on.

## How to recognize it
- `kl` is exactly 0 on every line while gradients and rewards are alive; DPO: `loss` 0.6931 and `rewards/margins` 0.
- trl refuses: `model and ref_model cannot be the same object`.
- `any(p.requires_grad for p in ref_model.parameters())`.

## How to fix it
- A home-made loop: `ref_model = copy.deepcopy(model).eval().requires_grad_(False)`, made before the first step.
- trl: leave `ref_model` out; under an adapter the base model is the reference.
- peft in a home-made loop: `with model.disable_adapter(), torch.no_grad(): ...`.
- verl and OpenRLHF load the reference from its own path: look that it is the one the policy started from.

## When it is a false alarm
In the first step policy and reference are equal, and the KL is 0. Loops without a reference that log 0 for it have none
to move: leave the signal out.
"""

from stayfinite.rules.rule import PROOF, Rule

RULE = Rule(
    code="SF250",
    fix="ref_model = copy.deepcopy(model).eval().requires_grad_(False) before the first step; in trl leave it out",
    signals=True,
    plans={"plan.reference": PROOF},
)
