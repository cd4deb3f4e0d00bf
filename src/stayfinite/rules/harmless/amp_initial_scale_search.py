"""GradScaler skips a few steps to find its scale: harmless.

## What it means
fp16 training multiplies the loss by a scale so that small gradients survive. The scaler starts high (65,536 in torch,
2^16 in DeepSpeed, 128 in fairseq) on purpose: while the gradients overflow, it skips the step, halves the scale and
tries again. After a few skips it has found a scale that fits. No weight was touched by the skipped steps.

## Why it happens
The right scale cannot be known beforehand. Once in a while (2,000 good steps in torch, 1,000 in DeepSpeed) the scaler
doubles it again to see whether more fits, which costs one skipped step.

## How to recognize it
- `Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to 32768.0`,
  `OVERFLOW! ... Attempted loss scale: 65536, reducing to 32768`, `overflow detected, setting loss scale to: 64.0`: a
  handful at the start, then single ones far apart.
- `grad_norm: nan` or `inf` in the first line or lines of the log, with a finite loss that falls from line to line.
- The scale settles at 128 or more. From a start of 2^24 or 2^32 that takes more than a handful of skips.

## How to fix it
Nothing needs to be done. If the lines disturb you:
- torch: `torch.amp.GradScaler("cuda", init_scale=2.0**12)`; DeepSpeed: `"fp16": {"initial_scale_power": 12}`; fairseq:
  `--fp16-init-scale 4`; Lightning: `MixedPrecision("16-mixed", "cuda", scaler=GradScaler(init_scale=2.0**12))`.
- `bf16=True` needs no scaler at all.

## When it is a false alarm
It is *not* harmless when the scale falls below 1, when every step is skipped, or when the loss itself is NaN:
then see `loss-scale-collapse`.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, REFUTED, STRONG, Clue, Clues, Rule, quote

LOWEST_USUAL_SCALE = 1.0
MOST_SKIPS_IN_A_ROW = 12


def judge(facts: Facts) -> Clues:
    """Clues: few skips that end, or bad norms at the start with good losses."""
    symptoms = facts.symptoms
    if symptoms.bad_losses or symptoms.bad_evals or symptoms.zero_loss or symptoms.crash or symptoms.never_updates:
        return
    if symptoms.settles and (not symptoms.unscaled_skips or facts.context.half is not None):
        seen = f"at the start are NaN or inf, the next {symptoms.good_after} are finite, and so is every loss"
        if symptoms.scale_holds:
            seen = f"are NaN or inf, {symptoms.good_after} are finite, and the loss scale does not sink"
        yield Clue(
            f"{symptoms.bad} gradient norms {seen}",
            STRONG + FAIR,
            symptoms.at("first_bad"),
        )
    scaled = symptoms.lowest_scale is not None or facts.said(r"\bloss[- _]?scal|grad[- _]?scal|gradient overflow")
    over = symptoms.longest_skips < MOST_SKIPS_IN_A_ROW or symptoms.found_scale
    if scaled and symptoms.skipped and not symptoms.collapses and over:
        lowest = symptoms.lowest_scale
        if lowest is None or lowest >= LOWEST_USUAL_SCALE or over:
            scale = "" if lowest is None else f", the scale stays at {lowest:g} or more"
            yield Clue(f"{symptoms.skipped} skipped steps{scale}", STRONG + FAIR, symptoms.at("first_skip"))
    yield from quote(facts.context.not_half, REFUTED, "no fp16, hence no scaler ({})")
    if symptoms.collapses:
        yield Clue("the loss scale collapses", REFUTED, symptoms.at("last_skip"))


RULE = Rule(
    code="SF901",
    severity="info",
    fix="nothing to do; bf16 needs no scaler, and a lower initial scale avoids the first skips",
)
