"""Gradients are clipped before they are unscaled.

## What it means
With a gradient scaler, the gradients after backward are the true ones times the scale (65,536 at first). Clipping
them at 1.0 then shrinks every step to almost nothing, and by how much depends on the scale of the moment. Training is
slow, or stalls, and its pace jumps whenever the scale changes.

## Why it happens
`clip_grad_norm_` was added to a loop with a scaler, or a scaler to a loop with clipping, and
`scaler.unscale_(optimizer)` between them was forgotten. `scaler.step` unscales too, but only after clipping has
been done.

## How to recognize it
- In the script: `scaler.scale(loss).backward()`, `clip_grad_norm_(...)`, `scaler.step(optimizer)`, and no `unscale_`
  before the clipping.
- The logged norm is in the ten thousands and halves or doubles in steps of two.

## How to fix it
- plain torch: `scaler.scale(loss).backward(); scaler.unscale_(optimizer); clip_grad_norm_(params, 1.0);
  scaler.step(optimizer); scaler.update()`. With accumulation, unscale only in the step in which the optimizer is
  stepped.
- accelerate: `accelerator.clip_grad_norm_(params, 1.0)`, which unscales first; never torch's own function there.
- Lightning: `gradient_clip_val=1.0`; in manual optimization `self.clip_gradients(opt, 1.0)`.
- transformers and DeepSpeed (`"gradient_clipping": 1.0`) do it right.

## When it is a false alarm
In bf16 and fp32 there is no scale, and a disabled scaler (`GradScaler(enabled=False)`) changes nothing.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.optimization.loop_code import BACKWARD, CLIP, SCALE, UNSCALE, Call, calls
from stayfinite.rules.optimization.rates import optimizer_of
from stayfinite.rules.rule import FAIR, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote

SCALED_NORM = 5000.0
"""A median gradient norm above this means scaled gradients or a diverged run."""


def judge(facts: Facts) -> Clues:
    """Clues: torch's refusal, the order in the script, and norms of scaled gradients."""
    refused = facts.said(r"unscale_?\(\) is being called after step")
    if refused is not None:
        yield from quote(refused, PROOF)
        return
    scaled, clipped, unscaled = calls(facts, SCALE), calls(facts, CLIP), calls(facts, UNSCALE)
    torchs_own = [call for call in clipped if "accelerator." not in call.text and "clip_gradients" not in call.text]
    # Adam normalizes the gradient's size. Plain SGD's steps become nearly zero.
    mild = not facts.runs and "sgd" not in optimizer_of(facts).lower()
    if scaled and torchs_own:
        first = _first_of_scaled(facts, torchs_own)
        before = [call for call in unscaled if first is None or call.order <= first.order]
        if not unscaled:
            text = "scaled gradients are clipped and never unscaled"
            yield Clue(text, STRONG + FAIR, torchs_own[0].where, mild=mild)
        elif not before:
            text = "the gradients are clipped before unscaling"
            yield Clue(text, STRONG + FAIR, first.where if first else torchs_own[0].where, mild=mild)
        else:
            yield Clue("the gradients are unscaled first", REFUTED, before[0].where)
    seen = facts.symptoms
    if scaled and seen.typical_norm is not None and seen.typical_norm > SCALED_NORM:
        yield Clue(f"gradient norms of about {seen.typical_norm:.4g} are from scaled gradients", FAIR, seen.at("start"))


def _first_of_scaled(facts: Facts, clips: list[Call]) -> Call | None:
    """The first clipping after a scaled backward pass; the program may also have an unscaled loop."""
    backward = calls(facts, BACKWARD)
    for clip in clips:
        last = max((call for call in backward if call.order <= clip.order), key=lambda call: call.order, default=None)
        if last is None or SCALE.search(last.text):
            return clip
    return None


RULE = Rule(
    code="SF207",
    fix="call scaler.unscale_(optimizer) before clip_grad_norm_ (accelerate: accelerator.clip_grad_norm_)",
    prior=-4.5,
    beats=("lr-too-low", "no-clipping"),
)
