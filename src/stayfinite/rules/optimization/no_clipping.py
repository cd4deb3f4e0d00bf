"""Gradients are not clipped: one huge gradient can ruin the weights.

## What it means
The gradient norm is usually small and sometimes a hundred times as large. Without a bound, one such step moves the
weights as far as a hundred ordinary ones, and training does not recover.

## Why it happens
Long sequences, recurrent nets, rare tokens, outliers in regression targets and mixed batches give single large
gradients. Clipping was switched off (`max_grad_norm=0`, `gradient_clip_val=None`), or the loop never had it: plain
torch, Lightning and fairseq do not clip by default.

## How to recognize it
- `grad_norm` in the log with spikes far above its median, and the loss jumps or is lost right after one.
- The settings say 0 or None for the largest norm.

## How to fix it
- transformers: `max_grad_norm=1.0` (its default; 0 switches it off).
- Lightning: `Trainer(gradient_clip_val=1.0, gradient_clip_algorithm="norm")`.
- accelerate: `if accelerator.sync_gradients: accelerator.clip_grad_norm_(model.parameters(), 1.0)` before the step.
- DeepSpeed: `"gradient_clipping": 1.0`. fairseq: `--clip-norm 1.0`. Megatron: `--clip-grad 1.0`.
- mmengine: `optim_wrapper=dict(clip_grad=dict(max_norm=35, norm_type=2))`.
- plain torch: `torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)` between backward (and `scaler.unscale_`) and
  the step. With `error_if_nonfinite=True` it also refuses NaN; without, one NaN is spread over all gradients.

## When it is a false alarm
Norms that are large and even are a matter of scale, not of clipping. A NaN norm cannot be clipped: find out where it
comes from.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.optimization.loop_code import CLIP, calls, shows_a_loop
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.course import lone_spike
from stayfinite.rules.signs.going_bad import went_bad

SPIKE = 30.0
"""Largest over median gradient norm above which a limit would have mattered."""


UNCLIPPED = r"^\s*(?:#|//)\s*[\w.]*clip_grad"
"""A remark that nothing is clipped, or the call commented out."""

FEW_LINES = 8
"""In a config this short, every line was chosen on purpose."""


def judge(facts: Facts) -> Clues:
    """Clues: clipping off, and a gradient norm far above the others before the loss fails."""
    seen, clip = facts.symptoms, facts.context.clip
    off = clip is not None and clip.value == 0
    absent = shows_a_loop(facts) and not calls(facts, CLIP)
    spoken = facts.settings.search(UNCLIPPED)
    if not off and not absent and spoken is None:
        return
    if clip is not None and off:
        yield Clue(f"clipping is disabled ({clip.text})", FAIR + HINT / 2, clip.where, risk=True)
    elif absent:
        yield Clue("the training loop does not clip", HINT / 2, risk=True)
    broken = went_bad(facts)
    if broken is None and not (seen.diverges or seen.absurd or seen.swings):
        return
    if broken is not None and (off or spoken is not None):
        yield Clue(broken.text, HINT, broken.where)
    if broken is not None and off and len(facts.settings.notes) <= FEW_LINES:
        yield Clue("and it is one of the few settings mentioned", HINT, broken.where)
    if (
        seen.largest_norm is not None
        and seen.typical_norm is not None
        and seen.largest_norm > SPIKE * seen.typical_norm > 0
    ):
        yield Clue(
            f"gradient norm {seen.largest_norm:.4g} (typical {seen.typical_norm:.4g})",
            FAIR + HINT,
            seen.at("first_bad"),
        )
    elif seen.norm_growth >= SPIKE or lone_spike(facts) is not None:
        yield Clue("the gradient norm jumps before the end", FAIR, seen.at("first_bad"))
    elif seen.largest_norm is not None and seen.points >= 5:
        yield Clue("every logged gradient norm is normal", AGAINST, seen.at("start"))
    if seen.explodes and seen.good_before >= 2:
        yield Clue("the run explodes after a good start", HINT, seen.at("first_bad"))


RULE = Rule(
    code="SF206",
    severity="warning",
    fix="clip the gradient norm at 1.0 (max_grad_norm=1.0, gradient_clip_val=1.0, clip_grad_norm_)",
    beats=("nan-loss", "loss-diverging", "exploding-gradient"),
    plans={"plan.clipping_off": STRONG + HINT},
    says={r"is an empty generator, no gradient clipping": PROOF},
    warns={
        r"does not permit max_grad_norm .{0,20}setting to zero": PROOF,
    },
)
