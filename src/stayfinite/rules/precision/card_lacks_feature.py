"""The GPU lacks a feature that the settings use.

## What it means
Some number formats and kernels exist from one generation of cards on. TF32 and FlashAttention 2 need Ampere or newer,
8-bit floating point needs Ada, Hopper or newer. On an older card the framework refuses at start, or falls back to
something slower, silently.

## Why it happens
A config that was written for an A100 or an H100 is launched on a T4, a V100 or a card of one's own. Notebooks on free
services get another card from one day to the next.

## How to recognize it
- `--tf32 requires Ampere or a newer GPU arch`; `FlashAttention only supports Ampere GPUs or newer`;
  `Device compute capability 8.9 or higher required for FP8 execution`; MX formats ask for 10.0 (Blackwell).
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

from stayfinite.rules.cards import card_named
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_REFUSED = (
    r"\b(?:fp8|float8|mxfp8|_scaled_mm|e4m3\w*|fp8e\w+)\b.{0,80}\b(?:not (?:natively )?supported|only supported|"
    r"unsupported|requires?|needs?)\b.{0,80}\b(?:capability|sm_?\d+|architecture|hopper|ada|blackwell|h100|mi300|"
    r"devices?|gpus?|hardware)|"
    r"\bcompute capability\b.{0,40}\b(?:8\.9|9\.0|9\.x|10\.0)\b.{0,60}\b(?:required|needed)\b.{0,30}\b(?:mx)?fp8"
)
"""Library errors on a GPU without fp8."""
_ONLY_NEWER = (
    r"\bonly supports? (?!single)\w+ (?:gpus?|cards?|devices?)(?: or (?:newer|later|above))?|"
    r"\b(?:requires?|needs?) (?:an? )?(?:volta|turing|ampere|ada|hopper|blackwell)\b|"
    r"\b(?:requires?|needs?)\b.{0,30}\bcapability (?:>=|of at least|\d)"
)


def judge(facts: Facts) -> Clues:
    """Clues: settings that the named GPU does not support, or a library's error."""
    refused = facts.said(_REFUSED)
    if refused is not None:
        yield Clue(refused.text, PROOF, refused.where, fix="bf16 instead of fp8, or an Ada or Hopper GPU or newer")
    yield from quote(facts.said(_ONLY_NEWER), PROOF)
    eight, gpu = facts.context.eight_bits, facts.context.gpu
    card = None if gpu is None else card_named(str(gpu.value))
    if eight is not None and card is not None and not card.fp8 and facts.symptoms.crash is not None:
        text = f"fp8 is on ({eight.told.text[:60]}), but {card.with_article} ({card.architecture}) has none"
        yield Clue(text, STRONG, eight.told.where, risk=True)


RULE = Rule(
    code="SF114",
    fix='tf32=False, attn_implementation="sdpa", bf16 instead of fp8; or a newer GPU',
    beats=("step-fails", "environment", "upstream-bug"),
    plans={"plan.card_lacks": PROOF},
    says={
        r"unsupported compute capability for|type (?:fp16|fp8) is not supported on your device": PROOF + HINT,
    },
)
