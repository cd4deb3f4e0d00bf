"""The loss falls, but every answer scores 0.

## What it means
The model trains, and the evaluation that generates finds nothing: an accuracy, an exact match, a BLEU or a pass rate of
exactly 0.0 at every evaluation. A model that is merely bad scores a little. Exactly nothing means that answers are
empty, cut, unparsable or compared with the wrong thing.

## Why it happens
- The answer pattern does not match what the model writes (another template, a missing `\\boxed{}`, capital letters, a
  trailing full stop).
- Generation stops at once: the end token is the first token, `max_new_tokens` is 1, the prompt is cut so that the
  question is missing.
- Decoded text still holds special tokens, or labels of -100 were decoded.
- The logits are NaN, so that every answer is the same token.
- Predictions and references are in different order or of different splits.

## How to recognize it
- `eval_bleu`, `eval_exact_match`, `accuracy` or `pass@1` are 0.0 in every evaluation, while `loss` and `eval_loss` are
  finite and fall.
- Rewards of exactly 0 for every sample in reinforcement learning.

## How to fix it
1. Print ten prompts, raw answers, parsed answers and references, side by side. It is nearly always visible.
2. Report the share of answers that could be parsed with the score, and never count an unparsable one as wrong without
   saying so.
3. transformers: `predict_with_generate=True`, `generation_max_length`; decode with `skip_special_tokens=True` after
   `labels[labels == -100] = tokenizer.pad_token_id`.
4. The same chat template in training and evaluation (`tokenizer.apply_chat_template(..., add_generation_prompt=True)`).

## When it is a false alarm
The first evaluation of an untrained model is 0 by right, as is BLEU-4 on very short answers. If the evaluation *loss*
is NaN, that is the cause.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import AGAINST, FAIR, HINT, Clue, Clues, Rule


def judge(facts: Facts) -> Clues:
    """Clues: scores of exactly 0 throughout, while losses are finite and fall."""
    symptoms = facts.symptoms
    if symptoms.bad or symptoms.bad_losses or symptoms.bad_evals or symptoms.zero_loss:
        return
    if symptoms.zero_score:
        scores = facts.metric(symptoms.zero_score)
        yield Clue(f"{symptoms.zero_score} is exactly 0 in all {len(scores)} evaluations", FAIR, scores[0][1])
        first, last = symptoms.first_loss, symptoms.last_loss
        if first is not None and last is not None and last < 0.5 * first:
            yield Clue(f"while the loss falls from {first:.4g} to {last:.4g}", FAIR + HINT, symptoms.at("start"))
        if symptoms.zero_score in {"acc", "accuracy", "train_acc", "train_accuracy"}:
            yield Clue("it is logged beside the training loss: no text is parsed for it", AGAINST, scores[0][1])


RULE = Rule(
    code="SF802",
    severity="warning",
    fix=(
        "print prompts, raw answers, parsed answers and references side by side; count unparsable answers "
        "separately; use the training template"
    ),
)
