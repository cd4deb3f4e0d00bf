"""A dimension is not a multiple of 16, which fp8 matrix products need.

## What it means
fp8 tensor cores take rows of 16 bytes, so both sides of a weight have to be multiples of 16. In the backward pass the
number of tokens (batch times length) becomes an inner dimension: it has to be one as well. Transformer Engine needs 8
there. A layer that does not fit stops the run at its first step.

## Why it happens
- A head of few classes: `num_labels=2`, a `Linear(hidden, 1)` for a reward or a gate.
- A vocabulary of an odd size: 50,257.
- A batch of texts padded to the longest, whose tokens are not a multiple of 16; a last batch that is smaller.
- A conversion without a filter by shape.

## How to recognize it
- `Expected trailing dimension of mat1 to be divisible by 16`, `Expected both dimensions of mat2 to be divisible by 16`.
- `FP8 execution requires 2D input matrices with height divisible by 8 and width divisible by 16`.
- `stayfinite check --build train:build` names the modules.

## How to fix it
- torchao: `module_filter_fn=lambda m, name: m.in_features % 16 == 0 and m.out_features % 16 == 0`; for tokens
  `pad_to_multiple_of=16` in the collator and `drop_last=True`, or `Float8LinearConfig(pad_inner_dim=True)`.
- transformers: `model.resize_token_embeddings(pad_to_multiple_of=16)`.
- Transformer Engine: `with te.fp8_autocast(enabled=False)` round the small layer, or `nn.Linear` in its place.
- accelerate and torchtitan leave such layers out by themselves; the tokens of a batch they cannot.

## When it is a false alarm
Emulated fp8 (`emulate=True`) takes every shape, at the cost of speed.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import in_short
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule, quote

_REFUSED = r"(?:divisible|multiples?) (?:by|of) (?:8|16|32|128)\b|\b\d+ ?% ?(?:8|16|32|128) ?!= ?0"
_OF_FP8 = lazy_regex(r"\b(?:mx)?fp8|\bfloat8\b|_scaled_mm|\bmat[12]\b|\bscaled[ _]mm\b", re.IGNORECASE)
_NO_KERNEL = r"CUBLAS_STATUS_NOT_SUPPORTED|cublasLtMatmulAlgoGetHeuristic|unable to find (?:any )?suitable algorithm"


def judge(facts: Facts) -> Clues:
    """Clues: a product refused for its shape, or shapes in a build or the settings."""
    seen = facts.seen("fp8.unaligned")
    if seen is not None and seen.value:
        fix = f"keep {in_short([name.partition(' ')[0] for name in seen.value])} in bf16 (module_filter_fn)"
        yield Clue(f"no multiples of 16: {in_short(seen.value)}", PROOF, seen.where, fix=fix, mild=True)
    eight = facts.context.eight_bits
    for message in facts.all_said(_REFUSED):
        named = _OF_FP8.search(message.text) is not None
        if named or eight is not None:
            yield Clue(message.text, PROOF if named else STRONG, message.where)
            return
    yield from quote(facts.said(_NO_KERNEL) if eight is not None else None, FAIR)


RULE = Rule(
    code="SF122",
    fix="keep that layer in bf16, or pad weights and batch tokens to multiples of 16",
    beats=("step-fails", "architecture-mismatch", "environment", "upstream-bug", "fp8-sensitive-module"),
    observes={"fp8.unaligned": "modules in fp8 with a side that 16 does not divide, each with its shape, a list"},
    plans={"plan.fp8_unaligned_dims": PROOF},
)
