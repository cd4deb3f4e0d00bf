"""Truncated answers keep their reward.

## What it means
Most answers are now cut at the length limit, and the reward has not fallen. A cut answer has no end, so a reward that
looks at the result should be lower for it. This reward does not notice, and teaches the policy never to stop.

## Why it happens
The reward looks at the beginning or at the format alone, takes any number in the text for the answer, or comes from a
reward model that reads the cut text as it is. Or a limit was lowered in the middle of a run.

## How to recognize it
- `completions/clipped_ratio` (trl), `response_length/clip_ratio` (verl), `rollout/truncated_rate` (OpenRLHF) rises
  above 0.5 while `reward` stays.
- In the printed completions the text stops in the middle of a sentence and has its full reward.

## How to fix it
- trl: `mask_truncated_completions=True` takes cut answers out of the loss; a longer `max_completion_length`.
- verl: `data.max_response_length=4096`, `reward_model.overlong_buffer.enable=True`.
- OpenRLHF: `--reward.stop_properly_penalty_coef 0`.
- In a reward function: give 0 unless the answer ends with the end token.

## When it is a false alarm
Tasks that score a text of fixed length (a continuation's sentiment) cut every answer from the first step on by design.
A model that has yet to learn its end begins with many cut answers, and their share falls.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF243",
    severity="warning",
    fix=(
        "give truncated answers no reward or mask them (trl: mask_truncated_completions=True), raise the completion "
        "limit"
    ),
    signals=True,
)
