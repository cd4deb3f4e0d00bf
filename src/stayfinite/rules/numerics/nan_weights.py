"""The weights hold NaN or inf before the step.

## What it means
A parameter or a buffer holds NaN, infinity or garbage before the step, as a rule before the first one. Every forward
pass through it is NaN, whatever the batch, the learning rate or the precision.

## Why it happens
- A parameter was made with `torch.empty(...)`, `torch.Tensor(n, m)` or `torch.FloatTensor(n, m)` and never initialized:
  it holds whatever lay in memory. It may work for weeks, then not.
- Loading made placeholders for names that the checkpoint lacks and did not fill them (a new head, a resized embedding,
  a meta-device model, a module whose `_init_weights` does not know it).
- The weights were saved after the run that made them had already broken, or a conversion overflowed (see
  `poisoned-checkpoint`).
- An init divides by zero (a fan of 0), or a mean over no old rows initializes added tokens.
- DeepSpeed ZeRO-3: parameters were touched outside `GatheredParameters` and are of size 0.
- Later in a run: the loop itself wrote it there (a teacher's average, a buffer that it sets), or BatchNorm's variance
  overflowed on an absurdly large row. Such a run may look healthy until it is evaluated.

## How to recognize it
- The loss is NaN at the very first step, in fp32 as well, with every batch; the gradient norm too.
- The number of NaN changes from start to start with the same seed.
- `[n for n, p in model.named_parameters() if not torch.isfinite(p).all()]` before training is not empty; so is
  `stayfinite scan` of the checkpoint.

## How to fix it
- Initialize what you create: `nn.init.xavier_uniform_(self.weight)`, `nn.init.zeros_(self.bias)`, or start from
  `torch.zeros`/`torch.randn * 0.02`.
- transformers: read the list after `Some weights ... were not initialized`; give your own modules an `_init_weights`;
  `low_cpu_mem_usage=False` on old versions; `resize_token_embeddings(n, mean_resizing=False)` if the mean is what
  fails.
- Download again and compare hashes if a *loaded* tensor is bad; else take an older checkpoint.
- ZeRO-3: `with deepspeed.zero.GatheredParameters(params, modifier_rank=0):` round hand-made inits.

## When it is a false alarm
Mask buffers hold minus infinity on purpose. If the first logged step is not the first step (`logging_steps=500`), the
weights may have broken in between.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.known import in_short
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.witness import not_finite

SAID_OF_WEIGHTS = (
    r"\b(?:weights?|parameters?|params?|embeddings?|bias(?:es)?|lm_head|state_dict|"
    r"buffers?)\b[^,;]{0,60}\b(?:contains?|has|have|are|is|become|with|all|full of)\b[^,;]{0,20}\bnan|"
    r"(?:weight|bias)\S{0,4}\s*(?:[:=]|has)\s*(?:tensor\()?\[*\s*nan|parameter containing:\s*tensor\(\[*\s*nan"
)
NAMED_TENSOR = (
    r"\bnans?\b[^.;]{0,40}['\"\s]\w+(?:\.\w+)+\.(?:weight|bias|running_(?:mean|var)|gamma|beta)\b|"
    r"\b\w+(?:\.\w+)+\.(?:weight|bias|running_(?:mean|var)|kernel|lora_[AB]\S*)\b['\"]?"
    r"\W{1,4}(?:has |contains? |is |are |all )*"
    r"(?:tensor\(\[*)?\s*(?:nan|-?inf)\b"
)
"""A tensor of the state dict, by full name, that is reported to hold NaN."""
NOT_SAVED = r"the state of step \d+ was not saved: \d+ tensors hold NaN or inf"
"""A guard's message about a state that it does not save."""
_EMPTY = (
    r"Parameter\(\s*torch\.(?:empty|Tensor|FloatTensor|HalfTensor)\(|torch\.(?:Tensor|"
    r"FloatTensor)\(\s*\d+\s*,\s*\d+\s*\)|torch\.empty\((?!.{0,60}(?:init|fill|normal|uniform|zero))"
)
_INITIALISED = r"reset_parameters|init\.(?:\w+_)\("


def judge(facts: Facts) -> Clues:
    """Clues: a scan or a probe is proof; else NaN from the first step with an uninitialized parameter."""
    seen = facts.seen("weights.nonfinite")
    if seen is not None:
        if seen.value:
            yield Clue(f"NaN or inf before the first step: {in_short(seen.value)}", PROOF + HINT, seen.where)
        else:
            yield Clue("every weight is finite before the first step", REFUTED, seen.where)
    yield from quote(facts.mentioned(SAID_OF_WEIGHTS), STRONG + HINT, "{:.160}")
    yield from quote(facts.said(NOT_SAVED), PROOF + STRONG, "{:.200}")
    bad = not_finite(facts)
    if not bad:
        return
    if not facts.mentioned(_INITIALISED):
        yield from quote(facts.mentioned(_EMPTY), STRONG, "a parameter is never initialized: {:.140}")
    start = facts.symptoms.from_start
    if start and facts.context.half is None:
        yield Clue("NaN or inf from the first logged step, and no fp16", HINT, facts.symptoms.at("first_bad"))
    if facts.symptoms.good_before > 0:
        yield Clue((f"{facts.symptoms.good_before} earlier steps were finite"), AGAINST * 2, facts.symptoms.at("start"))


RULE = Rule(
    code="SF615",
    fix=(
        "initialize every parameter you create (no bare torch.empty or torch.Tensor), reload the checkpoint, and "
        "check isfinite before training"
    ),
    beats=("nan-loss", "loss-collapse"),
    observes={
        "weights.nonfinite": "names of parameters and buffers that are not finite before training; empty when none"
    },
    says={
        r"found nan in actions": STRONG + FAIR,
    },
)
