"""The initial weights are too large, too small or all equal.

## What it means
Each layer multiplies the size of its input by some factor. With 50 layers, a factor of 1.3 makes activations 500,000
times larger and a factor of 0.7 makes them vanish. Rows that start equal stay equal: they get the same
gradient.

## Why it happens
- `torch.randn` weights without a scale (standard deviation 1 instead of `1/sqrt(fan_in)`), or an init written for
  another activation.
- Zero weights in two consecutive layers; a constant for a whole matrix.
- Residual branches that all add up at full size in a deep net.
- A layer that the init loop does not know (`isinstance` misses it) keeps what it had.
- A loop that sets every parameter of one dimension to 0 as a bias: the scales of normalization layers are among them.
- Training from scratch with a schedule that was made for fine-tuning pre-trained weights.

## How to recognize it
- Standard deviations of activations that grow or shrink geometrically with depth.
- A first loss of thousands or more with scaled inputs; NaN within the first steps, in fp32 as well, at any learning
  rate.
- A loss that stays exactly at `ln(classes)`: zero or identical rows.

## How to fix it
- `nn.init.kaiming_normal_(w, nonlinearity="relu")` for ReLU, `nn.init.xavier_uniform_(w)` for tanh and linear, std 0.02
  for transformers; biases 0.
- Residual nets: scale the last projection of each branch by `1/sqrt(2 * layers)` (GPT-2), or start it at 0; normalize
  before each branch.
- Print `{n: p.std().item() for n, p in model.named_parameters()}` before the first step.
- transformers: put the init of your own modules into `_init_weights`.

## When it is a false alarm
LoRA's second matrix, adapters, zero-convolutions and the last layer of a residual branch start at zero on purpose;
their partners do not. Norm weights start at 1.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import in_short
from stayfinite.rules.number_shapes import digits
from stayfinite.rules.numerics.first_losses import classes_of, first_loss_far_above
from stayfinite.rules.rule import AGAINST, FAIR, HINT, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.numbers import finite, measured

_CODE = (
    r"init\.(?:zeros_|constant_)\([^)]*weight|weight\.data\.(?:zero_|fill_)\(|"
    r"init\.normal_\([^)]*weight[^)]*(?:std\s*=\s*)?\b(?:[1-9]\d*|1\.0*)\s*\)|"
    r"nn\.Parameter\(\s*torch\.(?:randn|zeros|rand)\((?!.*(?:\*|/|\bsqrt\b|lora|bias|\b1\s*,\s*1\s*,))|"
    r"weight\.data\.normal_\(0(?:\.0)?,\s*1(?:\.0)?\)|"
    r"=\s*torch\.randn\([^)]*requires_grad\s*=\s*True[^)]*\)\s*$|"
    r"=\s*(?:tf\.Variable\()?(?:tf\.random(?:\.|_)normal|tf\.random_uniform)\(\s*\[[^\]]*\]\s*\)\s*\)?\s*$|"
    r"=\s*np\.random\.(?:randn|normal|rand)\([^()]*\)\s*$|stddev\s*=\s*(?:[1-9]\d*|1\.0*)\b|"
    r"random_normal_initializer\(\s*\)|"
    r"\b(?:np|torch|rng|random)\.(?:random\.)?(?:randn|normal|standard_normal)\([^()]*\) ?\* ?[1-9][\d.]*\s*$"
)
_SCALE = lazy_regex(
    r"\b[\w.]*(?:norm|gn|bn|ln)(?:_?\w{1,2})?\.(?:weight|gamma|scale)\b\W{1,3}(?:\w+\W{1,2})?"
    r"mean\s*[=: ]\s*(-?\d[\d.]*(?:e[+-]?\d+)?)",
    re.IGNORECASE,
)
FEW, EXACT = 3, 6
"""Losses after a bad one that show a training, and digits in which a loss is a logarithm only where outputs are 0."""
GEOMETRIC = 0.2
"""Mean change of log10(std) per layer that leaves the range over depth."""
GAIN = 4.0
"""Standard deviation times the root of the width that leaves it, too."""
NARROWEST = 64
"""Inputs of a layer where nobody tells how many."""
FIRST = 100.0
"""A first loss that no usual loss of scaled data has."""
_SPREADS = ("init_std", "initializer_range", "weight_scale", "init_method_std", "weight_init_std", "init_scale_std")
_WIDTHS = ("hidden_size", "d_model", "n_embd", "hidden_dim", "width", "dim_model")


def judge(facts: Facts) -> Clues:
    """Clues: a measured slope over depth, or an init in the code with a huge first loss."""
    slope = measured(facts, "activation.slope")
    if slope is not None and abs(slope[0]) > GEOMETRIC:
        word = "grow" if slope[0] > 0 else "shrink"
        yield Clue(f"activations {word} {10 ** min(abs(slope[0]), 30):.2g}x per layer", STRONG + HINT, slope[1])
    alike = facts.seen("weights.identical_rows")
    if alike is not None and alike.value:
        yield Clue(f"weight rows that start identical: {in_short(alike.value)}", STRONG + HINT, alike.where)
    yield from _zero_scales(facts)
    yield from _outputs_at_start(facts)
    yield from _too_wide(facts)
    if facts.symptoms.crash:
        return
    far = first_loss_far_above(facts)
    if not facts.symptoms.trouble and far is None:
        return
    code = facts.mentioned(_CODE)
    yield from quote(far, FAIR + HINT if code else FAIR)
    yield from quote(code, FAIR, "an unscaled init: {:.140}", risk=True)
    if facts.symptoms.points and facts.symptoms.good_before < 20:
        yield from quote(facts.mentioned(r"from scratch"), HINT, "{:.120}", risk=True)
    if facts.context.adapters:
        yield Clue("adapters on pre-trained weights", AGAINST, facts.context.adapters.where)


def _too_wide(facts: Facts) -> Clues:
    """Weights that are too large for their width, where numbers are out of range before a rate can matter."""
    symptoms = facts.symptoms
    if not (symptoms.non_finite or symptoms.explodes):
        return
    spread, width = facts.settings.find(*_SPREADS), facts.settings.find(*_WIDTHS)
    std, inputs = (finite(each.value) if each else None for each in (spread, width))
    width_told = f"{inputs:g} inputs" if inputs is not None else f"{NARROWEST} inputs or more"
    inputs = NARROWEST if inputs is None else inputs
    wide = spread is not None and std is not None and std * math.sqrt(max(inputs, 0)) >= GAIN
    if wide and spread is not None:
        text = f"{spread.name} {std:g} over {width_told}: activations grow with every layer"
        yield Clue(text, STRONG + HINT, spread.where)
    in_code = any(each.cause == "bad-init" for each in facts.settings.code_faults)
    first = symptoms.first_loss
    if (wide or in_code) and (symptoms.from_start or (first is not None and first >= FIRST)):
        yield Clue("values are out of range before the first update", FAIR + HINT, symptoms.at("start"))


def _outputs_at_start(facts: Facts) -> Clues:
    """The first loss alone is infinite, or that of outputs that are all 0 to the last digit and do not move."""
    seen = facts.symptoms
    if facts.context.half is None and seen.first_bad is not None and not seen.good_before:
        alone = seen.bad == 1 and seen.bad_losses == 1 and seen.good_after > FEW
        if alone and seen.falls:
            yield Clue("only the first loss, before any update, is infinite or NaN", STRONG, seen.at("first_bad"))
    first, classes = seen.first_loss, classes_of(facts) or seen.chance
    if first is None or classes is None or classes < 3 or not seen.trouble:
        return
    if digits(first) >= EXACT and abs(first - math.log(classes)) < 1e-6:
        text = f"the first loss is ln {classes:.0f} to the last digit: all outputs start at 0"
        yield Clue(text, STRONG, seen.at("start"))


def _zero_scales(facts: Facts) -> Clues:
    """Every scale of normalization that is printed has mean 0; the last one of a residual branch may start there."""
    printed = [(float(found[1]), each) for each in facts.lines if (found := _SCALE.search(each.text))]
    if printed and facts.symptoms.trouble and not any(mean for mean, _ in printed):
        yield Clue(
            f"the scales of normalization are 0: {printed[0][1].text.strip()[:80]}", STRONG + HINT, printed[0][1].where
        )


RULE = Rule(
    code="SF611",
    severity="warning",
    fix="initialize by fan-in (kaiming_normal_ for ReLU, xavier_uniform_ else, std 0.02 for transformers), biases "
    "0, residual branches scaled by depth",
    prior=-4.5,
    beats=("bad-initial-loss", "zero-gradient", "metric-stuck", "loss-collapse"),
    observes={
        "activation.slope": "change of log10 of the activations' standard deviation a layer",
        "weights.identical_rows": "names of weight matrices whose rows are all the same; empty when none",
    },
)
