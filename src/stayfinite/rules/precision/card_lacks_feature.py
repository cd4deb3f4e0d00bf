"""The settings ask for something that the card does not have: TF32, fp8 or FlashAttention 2.

## What it means
Some number formats and kernels exist from one generation of cards on. TF32 and FlashAttention 2 need Ampere or newer,
8-bit floating point needs Ada, Hopper or newer. On an older card the framework refuses at start, or falls back to
something slower without a word.

## Why it happens
A config that was written for an A100 or an H100 is launched on a T4, a V100 or a card of one's own. Notebooks on free
services get another card from one day to the next.

## How to recognise it
- `--tf32 requires Ampere or a newer GPU arch`; `FlashAttention only supports Ampere GPUs or newer`;
  `fp8 is only supported on devices with compute capability 8.9 or higher`.
- Before the launch: `stayfinite check train.yaml --gpu T4`.

## How to fix it
- transformers: `tf32=False` (or leave it out); `attn_implementation="sdpa"`, which runs everywhere and picks the best
  kernel that the card has.
- accelerate: `mixed_precision: bf16` (fp16 before Ampere) in place of `fp8`.
- axolotl: `flash_attention: false`, `sdp_attention: true`, `tf32: false`. LLaMA-Factory: `flash_attn: sdpa`.
- plain torch: `torch.backends.cuda.matmul.allow_tf32 = True` does no harm on older cards; it has no effect there.

## When it is a false alarm
FlashAttention 1 runs on Turing (T4, RTX 20). A fork of FlashAttention 2 for Turing exists.
"""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.rules.facts import Facts
from stayfinite.rules.plans import REMARKS, planned
from stayfinite.rules.rule import Clue, Rule


def judge(facts: Facts) -> Iterator[Clue]:
    """What the settings ask for, held against the card that was named."""
    yield from planned(facts, "plan.card_lacks")


RULE = Rule(
    code="SF114",
    slug="card-lacks-feature",
    severity="error",
    title="The settings ask for something that the card does not have.",
    fix='tf32=False, attn_implementation="sdpa", bf16 in place of fp8; or a card of a newer generation',
    judge=judge,
    page=__doc__,
    observes={"plan.card_lacks": REMARKS},
)
