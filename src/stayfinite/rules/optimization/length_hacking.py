"""Answers grow to the length limit together with the reward.

## What it means
Reward and length rise together, and more and more answers are cut at the limit or repeat themselves. The policy has
found that longer answers earn more. What it learns is length.

## Why it happens
- The reward counts something that long answers have more of: keywords, steps, format tags, a reward model that likes
  length.
- Cut answers are not punished, so that running into the limit costs nothing.
- The loss divides by each answer's own length, so that long wrong answers are punished less per token.

## How to recognize it
- `completions/mean_length` (trl), `response_length/mean` (verl), `response_length` (OpenRLHF) rises with `reward`, and
  `completions/clipped_ratio`, `response_length/clip_ratio` or `rollout/truncated_rate` with both.
- One part of the reward rises (format, length) while another (accuracy) stays or falls.

## How to fix it
Read ten of the longest answers with their rewards. Then:

- trl: `mask_truncated_completions=True`, `loss_type="dr_grpo"` or `"dapo"`, a reward that is 0 for cut answers.
- verl: `reward_model.overlong_buffer.enable=True`, `actor_rollout_ref.actor.loss_agg_mode=token-mean`.
- OpenRLHF: `--reward.stop_properly_penalty_coef 0` gives cut answers no reward; `--reward.overlong_penalty_factor`.

## When it is a false alarm
Reasoning grows longer as it gets better. Well under the limit, with hardly an answer cut, that is learning.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF242",
    severity="warning",
    fix=(
        "give truncated or repeating answers no reward, normalize the loss by a constant length, read the longest "
        "answers"
    ),
    signals=True,
)
