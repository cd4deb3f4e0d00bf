"""The reward model gives every answer the same score.

## What it means
A reward model is trained to score chosen answers above rejected ones. Where all scores are equal it ranks nothing, and
training with it as a reward teaches nothing: every advantage is 0.

## Why it happens
- The score head is not trained: a LoRA config without `modules_to_save=["score"]`, or a frozen head of zeros.
- Chosen and rejected answers are the same text, or are cut to the same prompt by a short `max_length`.
- The score is read at a padding token, because `pad_token_id` is not set in the model's config.

## How to recognize it
- trl: `min_reward` and `max_reward` are equal, `margin` is 0, and the loss stays at 0.6931.

## How to fix it
- trl with peft: `LoraConfig(task_type="SEQ_CLS", modules_to_save=["score"])`.
- Set `model.config.pad_token_id = tokenizer.pad_token_id`, and a `max_length` that keeps the answers.
- Print one pair as the model sees it: do chosen and rejected differ?

## When it is a false alarm
Scores in low precision are equal in the first steps; they are judged after 13 of them.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF251",
    fix="train the score head (modules_to_save), set pad_token_id, and check that chosen and rejected differ",
    signals=True,
)
