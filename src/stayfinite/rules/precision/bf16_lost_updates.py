"""Updates are too small for bf16 weights and are lost.

## What it means
The weights are stored in bfloat16, which keeps 8 bits of precision: next to 1.0 the next number is 1.0078. An update
smaller than half of that step is lost. With a learning rate of 1e-5 most updates of most weights vanish, and
training stalls or moves only where weights are near zero.

## Why it happens
bf16 has the range of fp32, so nothing overflows and nothing warns. Mixed precision keeps the weights in fp32 and
casts copies; loading with `dtype=torch.bfloat16`, `.to(torch.bfloat16)` or Lightning's `"bf16-true"` removes the fp32
weights to save memory.

## How to recognize it
- Weights in bf16 without a master copy, a small learning rate, and a loss that hardly moves while `grad_norm` is
  alive.
- After a step, most parameters are bit for bit what they were, though their gradients are not zero.
- The same run with fp32 weights under bf16 autocast learns.

## How to fix it
- transformers: `from_pretrained(name, dtype=torch.float32)` with `bf16=True`.
- Lightning: `Trainer(precision="bf16-mixed")` in place of `"bf16-true"`. accelerate: `mixed_precision="bf16"`, fp32
  weights.
- DeepSpeed: `"bf16": {"enabled": true}` keeps fp32 master weights. FSDP: fp32 parameters with
  `MixedPrecisionPolicy(param_dtype=torch.bfloat16)`.
- peft: adapters in fp32 over a bf16 base (`autocast_adapter_dtype=True`, the default).
- Where memory forbids fp32: stochastic rounding (`torchao.optim.AdamW8bit(bf16_stochastic_round=True)`), or an
  optimizer with Kahan summation.

## When it is a false alarm
With large learning rates (1e-4 and above, adapters trained from zero) enough updates survive for training to work. A
frozen bf16 base under fp32 adapters loses nothing.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, reaches

LOST = 0.5
"""Share of lost updates that is a fault."""

SMALL_LR = 5e-5
"""Adam's update is about the rate; half a bf16 step at a weight of 0.02 is 4e-5."""


def judge(facts: Facts) -> Clues:
    """Clues: lost updates; in settings, bf16 weights and a small rate with a flat loss."""
    yield from reaches(facts, "update.lost_share", LOST, "{:.0%} of the updates round to 0 in bf16", PROOF)
    weights, lr, seen = facts.context.weights, facts.context.lr, facts.symptoms
    pure = facts.settings.search(r"\bbf16-true\b|\bpure[ _-]?bf16\b")
    cast = facts.settings.search(
        r"\b(?:model|net\w*|llm)\b[^.\n]{0,12}\.(?:bfloat16\(\)|to\((?:dtype=)?torch\.bfloat16)"
    )
    pure = pure or cast
    if pure is None and (weights is None or weights.value != "bf16"):
        return
    if not (seen.flat or seen.still_score):
        return
    where, text = pure if pure is not None else (weights.where, weights.text) if weights is not None else ("", "")
    yield Clue(f"weights in bf16 ({text.strip()})", FAIR + HINT if pure is not None else FAIR, where, risk=True)
    yield Clue(f"{'the loss' if seen.flat else seen.still_score} does not move", FAIR, seen.at("start"))
    rate = seen.largest_lr if seen.largest_lr is not None else (float(lr.value) if lr is not None else None)
    if rate is not None and 0 < rate <= SMALL_LR:
        yield Clue(
            f"the learning rate {rate:g} makes updates smaller than bf16 can represent", HINT, lr.where if lr else ""
        )
    if seen.typical_norm is not None and seen.typical_norm > 0:
        yield Clue("gradients are alive", HINT, seen.at("start"))


RULE = Rule(
    code="SF107",
    fix="keep the trained weights in fp32 and use bf16 as mixed precision (bf16=True, dtype=torch.float32)",
    prior=-4.5,
    beats=("lr-too-low", "loss-collapse"),
    observes={
        "update.lost_share": "the share of weights with a gradient that a step leaves bit for bit unchanged, 0 to 1"
    },
    plans={"plan.bf16_updates": STRONG + FAIR},
    warns={
        r"bf16 gradient accumulation is not safe": STRONG + FAIR,
    },
)
