"""The gradient is too small for early layers to learn.

## What it means
Each layer multiplies the gradient by its own slope. Where that is below 1 over many layers or time steps, the
gradient of the first ones is smaller by orders of magnitude than that of the last. The loss falls a little, by what
the last layers can do, and stays.

## Why it happens
- Saturated sigmoid or tanh units: their slope is at most 0.25, or near 0 far from the origin.
- Deep stacks without residual connections or normalization; post-norm transformers without warm-up.
- Recurrent networks over hundreds of steps.
- Initial weights that are too small (`normal_(std=0.01)` in every layer), or inputs of a tiny scale.
- A loss that is nearly flat: saturated softmax, sigmoid twice, a temperature that is too high.

## How to recognize it
- A gradient norm below about 1e-6 while the loss is far from 0 and does not move.
- Per-layer norms that fall geometrically from the last layer to the first; `layers.npz` of a guarded run holds them.
- In fp16 look at SF105 first: there small gradients are rounded to 0.

## How to fix it
- Residual connections and normalization; pre-norm for deep transformers.
- `nn.init.kaiming_normal_` for ReLU, `xavier_uniform_` for tanh; ReLU, GELU or SiLU instead of sigmoid between
  layers.
- LSTM or GRU instead of a plain RNN, forget-gate bias 1, truncated back-propagation.
- Standardize the inputs; give logits, not probabilities, to the loss.
- Adam divides by the gradient's own size and hides much of this: look at the update, not at the gradient alone. With
  `eps` above the gradient's size (1e-8 against 1e-9) it stops too.

## When it is a false alarm
At the end of training the gradient is small because the loss is. With a summed or averaged loss over many terms its
absolute size means little; compare layers with each other.
"""

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule

FADED = 1e-6
"""With a loss above 0.1, a smaller gradient norm changes no fp32 weight at usual learning rates."""

_SQUASHES = lazy_regex(r"\bSigmoid\b(?=\(\)|\s*[+,]|\s*$)|activation\s*=\s*['\"]sigmoid['\"]")
DEEP = 4
"""Sigmoids in a row, of which one may be the output."""
DECADES = 5.0
"""Orders of magnitude between the first and last layer's gradient that no optimizer compensates."""


def judge(facts: Facts) -> Clues:
    """Clues: tiny norms with a substantial loss, or a measured slope over depth."""
    slope = facts.seen("gradient.depth_slope")
    if slope is not None and slope.value <= -0.5:
        yield Clue(
            f"the gradient norm falls {10 ** (-slope.value):.3g}x per layer towards the input",
            PROOF if slope.value <= -1 else STRONG,
            slope.where,
        )
    decades = facts.seen("gradient.depth_decades")
    if decades is not None and decades.value <= -DECADES:
        yield Clue(
            f"the gradient norm falls by {-decades.value:.0f} orders of magnitude from the last layer to the first",
            STRONG + 1.0,
            decades.where,
        )
    probed = facts.seen("gradient.norm")
    if probed is not None and 0 < probed.value < FADED / 100:
        yield Clue(f"the first gradient norm is {probed.value:.2g}", STRONG, probed.where)
    symptoms = facts.symptoms
    layers = [found for each in facts.lines for found in _SQUASHES.findall(each.text)]
    if (symptoms.chance is not None or symptoms.flat) and not symptoms.non_finite and len(layers) >= DEEP:
        yield Clue(f"{len(layers)} layers end in a sigmoid, each of which passes at most a quarter", STRONG)
    norm, loss = symptoms.typical_norm, symptoms.last_loss
    if norm is not None and 0 < norm < FADED and loss is not None and loss > 0.1:
        yield Clue(f"gradient norm {norm:.2g} with loss {loss:.3g}", STRONG, symptoms.at("start"))
        if symptoms.flat:
            yield Clue("and the loss does not move", FAIR)


RULE = Rule(
    code="SF407",
    severity="warning",
    fix=(
        "residual connections and normalization, He or Xavier initialization, ReLU or GELU instead of sigmoid, "
        "standardized inputs"
    ),
    beats=("lr-too-low", "lr-too-high", "loss-collapse", "input-ignored"),
    observes={
        "gradient.depth_slope": "the change of log10 of the gradient norm a layer, from the last layer to the first",
        "gradient.depth_decades": "the same over all layers",
        "gradient.norm": "the norm of the first gradient",
    },
)
