"""Most units of a layer are 0 for every input and cannot learn.

## What it means
A ReLU unit whose input is negative for every sample puts out 0 and passes a gradient of exactly 0. Nothing can bring
it back, because its weights no longer get a gradient. If most units of a layer are dead, the layer puts out a
constant, and everything below it stops learning too.

## Why it happens
- One update that was too large pushed the biases far below zero: a high learning rate, a spike, no warm-up.
- A negative initial bias, or initial weights of the wrong scale for ReLU.
- Inputs that are not centered (all positive pixels of 0 to 255), so that one sign of weight kills the unit for all of
  them.
- In mixtures of experts and codebooks: experts or codes that are never chosen.

## How to recognize it
- A share of exactly zero activations, over a whole batch, that stays above one half in a layer and does not change.
- Gradient exactly 0 for whole rows of a weight matrix; `gradient norm 0` when a full layer is dead.
- The loss stays at that of a constant prediction (ln of the number of classes, the variance of the targets) after a
  spike.
- Preflight counts them: units that are zero on every sample of a batch.

## How to fix it
- Lower the learning rate, warm up, clip; start again, or re-initialize the dead units: training on does not revive
  them.
- `nn.LeakyReLU(0.01)`, GELU or SiLU; He initialization `nn.init.kaiming_normal_(w, nonlinearity="relu")`; bias 0.
- BatchNorm or LayerNorm before the activation; standardized inputs.
- Codebooks: restart unused codes; experts: a load-balancing loss.

## When it is a false alarm
Sparse activations are usual: half of the zeros of a ReLU layer on a *single* sample mean nothing. Dead means zero on
every sample.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, REFUTED, Clue, Clues, Rule

MANY = 0.8
"""At initialization, up to half of a deep plain net's units may be silent on similar inputs."""


def judge(facts: Facts) -> Clues:
    """Clues: a measured share of dead units, or what the log says."""
    seen = facts.seen("activations.dead_share")
    if seen is not None:
        if seen.value >= MANY:
            yield Clue(f"{seen.value:.0%} of a layer's units are 0 on every sample", PROOF, seen.where)
        elif seen.value < 0.1:
            yield Clue(f"only {seen.value:.0%} of any layer's units are 0 on every sample", REFUTED, seen.where)


RULE = Rule(
    code="SF409",
    severity="warning",
    fix=(
        "lower the learning rate and warm up, He initialization, LeakyReLU or GELU, standardized inputs; "
        "re-initialize dead units"
    ),
    beats=("zero-gradient",),
    observes={
        "activations.dead_share": "the largest share, over layers, of units that are 0 on every sample of a batch, 0 "
        "to 1"
    },
)
