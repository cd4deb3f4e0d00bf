"""The learning rate is 0 at the first step of warmup: harmless.

## What it means
A linear warmup starts at 0, so the first logged learning rate is 0.0 and the first step changes nothing. DeepSpeed and
transformers also log 0 when they are asked for the rate before the schedule has taken its first step.

## Why it happens
`lr = base * step / warmup_steps` is 0 at step 0. While an fp16 scaler skips the first steps, the schedule waits,
so that the zero can be logged several times.

## How to recognize it
- `'learning_rate': 0.0` in the first line, and a growing rate in the next.
- `tried to get lr value before scheduler/optimizer started stepping, returning lr=0`.

## How to fix it
Nothing needs to be done. To begin above 0: `get_linear_schedule_with_warmup` from step 1, torch's
`LinearLR(start_factor=0.01)`, DeepSpeed's `WarmupLR` with `warmup_min_lr` above 0.

## When it is a false alarm
It is *not* harmless when the rate stays at 0 (see `lr-zero`): a warmup longer than the training, a schedule of 0 total
steps, `lr` given as text, or an optimizer step that is skipped at every step.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: zero first and positive later, or the library's warning without other trouble."""
    symptoms = facts.symptoms
    if not symptoms.trouble:
        yield from quote(facts.said(r"tried to get lr value before scheduler"), PROOF)
    if (
        symptoms.first_lr == 0
        and symptoms.largest_lr
        and symptoms.zero_lrs <= max(3, symptoms.lrs // 4)
        and not symptoms.trailing_zero_lrs
    ):
        yield Clue(
            f"the learning rate is 0 at the first {symptoms.zero_lrs} of {symptoms.lrs} points and grows afterwards",
            STRONG + FAIR,
            symptoms.at("zero_lr"),
        )
    if symptoms.lr_zero:
        yield Clue("the learning rate stays at 0", REFUTED, symptoms.at("zero_lr"))


RULE = Rule(code="SF902", severity="info", fix="nothing to do")
