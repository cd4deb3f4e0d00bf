"""The optimizer holds a parameter twice and updates it twice per step.

## What it means
The optimizer's groups name the same tensor more than once. Each step then updates it as often: twice the learning
rate, twice the decay, moments that are advanced twice with the same gradient.

## Why it happens
- Tied weights, listed by hand: `list(embed.parameters()) + list(head.parameters())` names a shared matrix twice.
- Groups with and without decay whose conditions overlap, written into `param_groups` directly: `add_param_group` would
  have refused.
- A module that is reached by two names (`self.encoder` and `self.backbone` are one) and collected by both.

## How to recognize it
- `UserWarning: optimizer contains a parameter group with duplicate parameters; in future, this will cause an error`.
- `len(ps) != len(set(map(id, ps)))` for `ps = [p for g in optimizer.param_groups for p in g["params"]]`.
- One layer learns at a multiple of the rate of the others, or oscillates.

## How to fix it
- Collect by name from `model.named_parameters()`, which gives a tied weight once.
- By hand: `list(dict.fromkeys([*embed.parameters(), *head.parameters()]))`.
- Decay groups: `decay = [p for p in params if p.dim() >= 2]`, `rest = [p for p in params if p.dim() < 2]`: each
  parameter falls into exactly one.

## When it is a false alarm
Two optimizers that share a parameter on purpose (alternating objectives) are two lists; each of them has it once.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: the groups, or torch's warning."""
    said = facts.said(
        r"parameter group with duplicate parameters|some parameters appear in more than one parameter group|"
        r"occurs multiple times in optimizer\.param_groups"
    )
    yield from quote(said, PROOF if facts.symptoms.trouble else PROOF - 2.0)


RULE = Rule(
    code="SF220",
    fix="use model.named_parameters(), which lists a tied weight once, and put each into exactly one group",
    proofs={
        # Names of parameters that the optimizer's groups hold more than once, a list.
        "optimizer.twice": "in the optimizer more than once: {}",
    },
)
