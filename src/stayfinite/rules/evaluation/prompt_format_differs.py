"""Evaluation prompts differ from training prompts.

## What it means
A chat model answers the format it was trained on. Another template, a missing system line, a missing generation prompt,
a second begin token or a trailing space makes it answer a question that it was never asked. Losses are healthy; answers
are poor, endless or empty.

## Why it happens
- Training used one template (Alpaca, ChatML, Vicuna) and evaluation uses the tokenizer's own, or none.
- `add_generation_prompt` is missing, so the model continues the *user's* turn.
- The template adds the begin token and the tokenizer adds it again.
- The end-of-turn token was not trained (masked, or the pad token is the end token), so the model never stops.

## How to recognize it
- `No chat template is defined for this tokenizer - using a default chat template`.
- Evaluation by *loss* is good and evaluation by *generation* is bad.
- The two scripts differ in their prompt strings; `tokenizer.decode(input_ids)` of one training row and one evaluation
  prompt shows it at once.

## How to fix it
- One function makes prompts for both:
  `tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True)` for generation, `False` for
  training rows.
- Save the template with the model (`tokenizer.save_pretrained`), and serve with it (`--chat-template` in vLLM).
- `add_special_tokens=False` when tokenizing a text that already went through a template.
- Choose a pad token that is not the end token, so that the end token is learned.

## When it is a false alarm
Base models have no template, and few-shot prompts need none.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule


def judge(facts: Facts) -> Clues:
    """Clues: a tokenizer without a template, or two formats in the settings."""
    seen = facts.seen("evaluation.prompt_matches")
    if seen is not None and seen.value is False:
        yield Clue("an evaluation prompt starts differently from the training rows", PROOF, seen.where)


RULE = Rule(
    code="SF805",
    severity="warning",
    fix="build both with one call: tokenizer.apply_chat_template(..., add_generation_prompt=True for generation), "
    "and save the template with the model",
    prior=-4.5,
    beats=("zero-answer-rate",),
    observes={"evaluation.prompt_matches": "whether an evaluation prompt begins as the training rows do"},
    warns={
        r"trained on a context that differs from the one it sees at inference": STRONG + HINT,
    },
)
