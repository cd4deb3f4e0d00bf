"""Generated answers are truncated by a length limit.

## What it means
Generation stops because a limit is reached and not because the model is done. Whatever comes after it, usually the
answer, is missing, and the score measures the limit.

## Why it happens
- Nothing was set, and the library's default of 20 tokens *including the prompt* applies.
- `max_length` counts the prompt as well (decoder-only models), `max_new_tokens` does not.
- `generation_config.json` of the checkpoint brings its own limit.
- Reasoning models think longer than the limit; reinforcement learning clips the completions and punishes them for
  missing answers.

## How to recognize it
- `Using the model-agnostic default max_length (=20)`, `Input length of input_ids is 512, but max_length is set to 20`.
- `eval_gen_len` is the same round number at every evaluation (20.0, 19.0, 128.0).
- `completions/clipped_ratio` at or near 1.0; answers without an end token.

## How to fix it
- `model.generate(..., max_new_tokens=512)`; transformers' Seq2SeqTrainingArguments:
  `predict_with_generate=True, generation_max_length=256`; or `model.generation_config.max_new_tokens = 512`.
- GRPO and similar: `max_completion_length=2048`, or a length penalty that sets in before the limit.
- Look at the share of answers that end with the end token, next to the score.

## When it is a false alarm
Tasks with a fixed output (a class word) have a constant length by nature. A clipped ratio that falls during training is
the model learning to end.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.numbers import finite, finite_metric

DEFAULT_LENGTHS = frozenset({18.0, 19.0, 20.0})
"""Lengths that the library's default of 20 produces, with and without special tokens."""


LIMITS = ("generation_max_length", "max_new_tokens", "val_max_target_length", "max_completion_length", "max_length")
FEW = 3
"""Too few points to vouch for a run."""


def judge(facts: Facts) -> Clues:
    """Clues: the library's warning about its default, constant lengths, or only truncated completions."""
    warned = facts.said(
        r"model-agnostic default `?max_length`?|input length of .{0,30}is \d+, but `?max_length`? is set to|"
        r"`?max_length`? is set to 20|neither `?max_length`? nor `?max_new_tokens`? has been set"
    )
    if warned:
        # A limit below the input length leaves nothing to generate; the default may suit the task.
        nothing_left = "input length of" in warned.text.lower()
        yield Clue(
            warned.text.strip()[:200], STRONG + HINT if nothing_left else STRONG, warned.where, risk=not nothing_left
        )
    lengths = finite_metric(facts, "eval_gen_len", "gen_len", "predict_gen_len", "test_gen_len")
    if len(lengths) >= 2 and len({value for value, _ in lengths}) == 1:
        limit = finite(facts.settings.value(*LIMITS))
        capped = limit is not None and abs(limit - lengths[0][0]) <= 1
        weight = STRONG + HINT if capped or lengths[0][0] in DEFAULT_LENGTHS else FAIR
        yield Clue(f"every evaluation generates exactly {lengths[0][0]:g} tokens", weight, lengths[0][1])
    clipped = finite_metric(facts, "completions/clipped_ratio", "clipped_ratio", "completions_clipped_ratio")
    if len(clipped) >= 3 and all(value >= 0.95 for value, _ in clipped):
        yield Clue(f"{clipped[-1][0]:.0%} of the completions are truncated, at every step", STRONG, clipped[0][1])


RULE = Rule(
    code="SF803",
    severity="warning",
    fix="set max_new_tokens (generation_max_length in Seq2SeqTrainingArguments, max_completion_length in GRPO) "
    "above the longest answer",
    beats=("zero-answer-rate",),
    plans={"plan.generation_limit": STRONG + HINT},
)
