"""The eps of a normalization layer is too small for its dtype or data.

## What it means
LayerNorm, BatchNorm and RMSNorm divide by `sqrt(variance + eps)`. If the variance is 0 (a constant row, padding, one
element) only eps keeps the gradient finite: with 1e-12 it is multiplied by a million. In fp16 everything
below 6e-8 is 0, so an eps of 1e-8 has no effect.

## Why it happens
- A config from a framework that computes in fp32 (1e-12 is BERT's) is used with weights and norms in fp16.
- A norm is written by hand in half precision: `x * torch.rsqrt(x.pow(2).mean(-1) + eps)` overflows at |x| > 255 in
  fp16, since x squared is more than 65,504.
- Constant inputs: all-zero padding rows, dead channels, a spatial size of 1, a group of one element.

## How to recognize it
- `layer_norm_eps`, `rms_norm_eps`, `norm_eps` or `eps` of 1e-8 or less with fp16 in use; or a first non-finite operator
  that is a norm.
- `Expected more than 1 value per channel when training, got input size [1, 256]`: a batch norm that has nothing to
  average.
- Gradient norms that jump by orders of magnitude on batches with much padding.

## How to fix it
- `eps=1e-5` (1e-6 for RMSNorm), and compute the norm in fp32: `x.float()` inside, cast back outside. Autocast does so
  for `nn.LayerNorm`.
- transformers: `config.layer_norm_eps = 1e-5` or `config.rms_norm_eps = 1e-6` before `from_pretrained`; pre-trained
  values were trained with: change them only where they underflow.
- Batch of 1: `drop_last=True` in the DataLoader, or GroupNorm instead of BatchNorm.
- Keep norms out of pure half precision: DeepSpeed and FSDP `MixedPrecision` with fp32 norms.

## When it is a false alarm
1e-12 in fp32 on ordinary activations (BERT, ViT) is harmless: variances are never near it.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.numbers import finite
from stayfinite.rules.signs.witness import not_finite

_NAMES = (
    "layer_norm_eps", "layernorm_epsilon", "layer_norm_epsilon", "rms_norm_eps", "norm_eps", "norm_epsilon",
    "batch_norm_eps", "bn_eps", "ln_eps", "group_norm_eps", "eps_norm",
)  # fmt: skip
HALF_SMALLEST = 6e-8
"""The smallest positive fp16 value."""


def judge(facts: Facts) -> Clues:
    """Clues: an eps that rounds to 0 in fp16, in settings or code."""
    bad = not_finite(facts)
    for name in _NAMES:
        setting = facts.settings.find(name)
        eps = None if setting is None else finite(setting.value)
        if setting is None or eps is None:
            continue
        half = facts.context.half
        if eps < HALF_SMALLEST and half is not None:
            yield Clue(
                f"{setting.name}: {setting.value} is 0 in fp16 ({half.text})", FAIR + HINT, setting.where, risk=True
            )
        break
    else:
        written = facts.mentioned(
            r"\b\w*norm\w*\(.{0,60}\beps(?:ilon)?\s*=\s*(?:0\b(?!\.0*[1-9])|0\.0+\b|1e-(?:0?[89]|1\d|[2-9]\d))"
        )
        if written and bad:
            yield Clue(f"a norm with almost no eps: {written.text.strip()[:100]}", STRONG, written.where, risk=True)
    eps_seen = facts.seen("norm.eps_underflows")
    if eps_seen is not None and eps_seen.value:
        yield Clue(f"eps rounds to 0 in the norm's dtype: {eps_seen.value}", STRONG + FAIR, eps_seen.where, risk=True)


RULE = Rule(
    code="SF613",
    severity="warning",
    fix="eps=1e-5 (1e-6 for RMSNorm), norms computed in fp32",
    prior=-4.5,
    beats=("nan-loss",),
    observes={
        "norm.eps_underflows": "names of norm modules whose eps is 0 in the dtype they compute in; empty when none"
    },
)
