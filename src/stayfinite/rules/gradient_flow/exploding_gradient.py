"""The gradient grew by orders of magnitude before the loss broke.

## What it means
The gradient norm rises by orders of magnitude, within a step or over many, until an update throws the weights away or
the norm itself becomes infinite. It is the last link before NaN; what made it grow is the cause to look for.

## Why it happens
- A learning rate that is too high, or full from the first step (SF201, SF205): each update makes the next gradient
  larger.
- No clipping (SF206), where the architecture needs it: recurrent networks, deep post-norm transformers, detectors on
  small batches.
- A product over depth or time with a factor above 1: initial weights too large, no normalization, residual branches
  that are not scaled.
- One batch far outside the rest (SF213, SF301), unscaled inputs or targets (SF309).
- Attention logits that grow over training in bf16 and fp32: the softmax becomes one-hot and its gradient jumps.

## How to recognize it
- `grad_norm` climbs from its usual level by 30 times and more before the loss turns.
- The loss follows one or a few steps later, and with it NaN.
- Per layer: the norm grows from the last layer to the first (recurrent or unnormalized stacks), or sits in one layer
  (attention, head).

## How to fix it
- Clip: transformers `max_grad_norm=1.0`, Lightning `Trainer(gradient_clip_val=1.0)`, accelerate
  `accelerator.clip_grad_norm_(model.parameters(), 1.0)` before the step, DeepSpeed `"gradient_clipping": 1.0`, plain
  torch `torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)` (after `scaler.unscale_(optimizer)` with a scaler).
- Halve the learning rate, warm up over the first hundreds of steps (`warmup_steps=500`).
- Normalize: pre-norm, QK-norm for attention logits, z-loss, residual branches scaled by `1/sqrt(2 * layers)`.
- Go back to a checkpoint from before the climb: the optimizer's moments have seen it too. The guard vetoes such steps
  and rolls back.

## When it is a false alarm
Single spikes that clipping catches, while the loss stays level, are part of healthy training. At the first steps
large norms are usual.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote, reaches

HUGE = 1e8
"""No step can use a first gradient of this norm."""
GROWN = 30.0
"""A gradient norm that grows by this factor is not noise."""

DECADES = 4.0
"""Orders of magnitude between the first and last layer's gradient."""
_RECURRENT = r"(?:\b|_)(?:Bi)?(?:LSTM\w*|GRUs?|RNNs?|recurrent)(?:\b|_)"


def judge(facts: Facts) -> Clues:
    """Clues: a rising norm before the loss turned, or a measured slope over depth."""
    slope = facts.seen("gradient.depth_slope")
    if slope is not None and slope.value >= 0.5:
        yield Clue(
            f"the gradient norm grows {10**slope.value:.3g}x per layer towards the input",
            PROOF if slope.value >= 1 else STRONG,
            slope.where,
        )
    yield from reaches(
        facts,
        "gradient.depth_decades",
        DECADES,
        "the gradient norm grows by {:.0f} orders of magnitude from the last layer to the first",
        STRONG + 1.0,
    )
    yield from reaches(facts, "gradient.norm", HUGE, "the first gradient norm is {:.2g}", STRONG + 1.0)
    symptoms = facts.symptoms
    broken = symptoms.bad > 0 or symptoms.diverges
    if not broken or symptoms.settles:
        return
    if symptoms.norm_growth >= GROWN:
        yield Clue(f"the gradient norm grew {symptoms.norm_growth:.3g}x before it broke", 2.5, symptoms.at("first_bad"))
    largest, typical = symptoms.largest_norm, symptoms.typical_norm
    if largest is not None and typical is not None and typical > 0 and largest >= 1e3 and largest >= 100 * typical:
        yield Clue(f"gradient norm {largest:.3g} (typical {typical:.3g})", HINT)
    if facts.context.half is None:
        yield from quote(facts.mentioned(_RECURRENT), FAIR, "gradients pass through every time step: {:.80}", risk=True)
    if facts.context.half is not None and symptoms.norm_growth < GROWN:
        yield Clue(f"fp16 overflows without a climb ({facts.context.half.text})", AGAINST, facts.context.half.where)


RULE = Rule(
    code="SF408",
    severity="warning",
    fix=(
        "clip at 1.0 (max_grad_norm, gradient_clip_val, clip_grad_norm_), lower the learning rate, warm up, and "
        "resume from before the climb"
    ),
    beats=("nan-loss",),
    observes={
        "gradient.depth_slope": "the change of log10 of the gradient norm a layer, from the last layer to the first",
        "gradient.depth_decades": "the same over all layers",
        "gradient.norm": "the norm of the first gradient",
    },
)
