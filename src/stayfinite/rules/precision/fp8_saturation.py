"""One fp8 scale cannot hold the values of a tensor.

## What it means
fp8 has 8 bits: E4M3 ends at 448 and has 3 bits of mantissa, E5M2 ends at 57,344 and has 2. Each tensor is multiplied by
a scale first, so that its largest value (amax) fits. Where one channel or token is thousands of times larger than the
rest, a scale for the whole tensor fits that one and rounds the rest to 0; a scale that fits the rest clips the large
one. The loss climbs away from the bf16 run, or becomes NaN.

## Why it happens
- Outlier channels: SwiGLU's product, residual streams late in training, models fine-tuned from bf16 with outliers.
- E4M3 for gradients under one scale a tensor: gradients span more than its range.
- Everything was converted, also layers whose inputs are wide: first and last block, head.

## How to recognize it
- The same run in bf16 is fine; with rowwise or blockwise scales it is fine as well.
- A guarded run's autopsy, or `stayfinite replay`, tries the step with `module_bf16` and `rowwise_scale`, and names the
  layer.

## How to fix it
- torchao: `Float8LinearConfig.from_recipe_name("rowwise")`, or `rowwise_with_gw_hp`, in place of tensorwise.
- torchtitan: `recipe_name = "rowwise"`, and the module's name in `filter_fqns`.
- Transformer Engine: `fp8_format=Format.HYBRID`; `with te.fp8_autocast(enabled=False)` round the module; on Blackwell
  `MXFP8BlockScaling`. Megatron: `--fp8-recipe blockwise` (Hopper) or `mxfp8`, `--first-last-layers-bf16`.

## When it is a false alarm
Early in training a loss up to a few percent above bf16's is usual and closes. NaN in bf16 as well has another cause.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.fp8_settings import ROWWISE
from stayfinite.rules.rule import AGAINST, FAIR, REFUTED, Clue, Clues, Rule
from stayfinite.rules.signs.fp8_loss import lost


def judge(facts: Facts) -> Clues:
    """Clues: fp8 and a failed run, a remark on amax, or a remark that bf16 works."""
    eight = facts.context.eight_bits
    if eight is None:
        yield Clue("no sign of fp8", REFUTED)
        return
    sign = lost(facts)
    if sign is None:
        return
    yield sign
    yield Clue(f"fp8 is on ({eight.told.text[:80]})", FAIR, eight.told.where, risk=True)
    if eight.scaling is not None and eight.scaling.value == ROWWISE:
        yield Clue(f"rowwise scales are used ({eight.scaling.text[:60]})", AGAINST / 2, eight.scaling.where)


RULE = Rule(
    code="SF118",
    fix="use rowwise scales (torchao: recipe rowwise; Megatron: --fp8-recipe blockwise), or keep the module in bf16",
    beats=("nan-loss", "loss-diverging", "exploding-gradient", "loss-collapse"),
)
