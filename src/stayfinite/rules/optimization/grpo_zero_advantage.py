"""All rewards of a group are equal: advantage, loss and gradient are 0.

## What it means
GRPO and similar methods judge each answer against the others to the same prompt. When all answers of a group get the
same reward, every advantage is 0, and with it the loss and the gradient. The step is computed and teaches nothing.

## Why it happens
The reward function returns a constant: its format check never matches, the answer is not extracted, the reference has
another form, or all answers are cut at the limit before they give a result. Or the task is too easy or too hard for
the model: all right, or all wrong. Or sampling is nearly greedy (low temperature, small top_k or top_p), so that the
answers are the same. Or there is one answer a prompt: it is its own mean. (verl takes 0 for the mean of one answer, so
that its raw reward becomes its advantage: it trains, and compares nothing.)

## How to recognize it
- `reward_std` 0.0, `frac_reward_zero_std` 1.0, `loss` 0.0 and `grad_norm` 0.0 on every line.
- `reward` is constant: 0.0 (nothing matches) or the maximum (solved).
- verl: `critic/advantages/max` and `critic/advantages/min` are both 0; what gradient is left is that of the KL term.
- `completions/clipped_ratio` 1.0: every answer is cut.
- The deviation of a single reward over the whole batch (`rewards/.../std`) may be above 0 while that inside each
  group is 0.

## How to fix it
Print a group of completions with their rewards first (trl: `log_completions=True`).

- trl: `GRPOConfig(num_generations=8, temperature=1.0, top_p=1.0, max_completion_length=...)`; graded rewards in place
  of 0 and 1; filter prompts that are always or never solved.
- ms-swift: `--temperature 1.0 --num_generations 8 --log_completions true`; `--dynamic_sample true` draws again.
- verl: `algorithm.filter_groups.enable=True` (as in DAPO) leaves such groups out.
- A short supervised phase first, so that the format is met at all.

## When it is a false alarm
A loss of 0.0 alone is right in GRPO: at the first update of a batch the advantages of a group sum to 0, and the
logged value is only the KL term. With `grad_norm` and `reward_std` above 0 the run learns. Some groups of equal
rewards in each batch are normal.
"""

import math
from dataclasses import replace
from statistics import median

from stayfinite.core.post_training.signs import ALL_RIGHT, ZERO_ADVANTAGE
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote, seen_in_log

MOST = 0.9
"""The share of steps without a spread of rewards."""


def judge(facts: Facts) -> Clues:
    """Clues: no reward deviation per group, with loss and gradient of 0; a solved task is fine."""
    seen = facts.post_training.get(ZERO_ADVANTAGE)
    if seen is None:
        yield from _clues(facts)
        return
    for clue in _clues(facts):
        yield replace(clue, mild=seen.sign.variant == ALL_RIGHT, fix=seen.sign.advice)


def _clues(facts: Facts) -> Clues:
    deviations = [
        (value, where)
        for value, where in facts.metric("reward_std", "rewards/std", "reward/std")
        if math.isfinite(value)
    ]
    shares = [(value, where) for value, where in facts.metric("frac_reward_zero_std") if math.isfinite(value)]
    seen = facts.symptoms
    still = seen.zero_loss or (seen.zero_norms > 0 and seen.zero_norms * 2 >= seen.points)
    if deviations:
        value, where = median(value for value, _ in deviations), deviations[0][1]
        # In small groups all rewards are often equal.
        if sum(each == 0 for each, _ in deviations) >= MOST * len(deviations):
            yield Clue("reward_std is 0: all answers to a prompt get the same reward", STRONG + HINT, where)
        else:
            yield Clue(
                f"reward_std is {value:.3g}: rewards differ inside groups",
                REFUTED if min(v for v, _ in deviations) > 0 else -FAIR,
                where,
            )
    if shares and median(value for value, _ in shares) >= 0.99:
        yield Clue("frac_reward_zero_std is 1: no group has different rewards", STRONG, shares[0][1])
    if not deviations and not shares and ZERO_ADVANTAGE in facts.post_training:
        # verl logs the advantages themselves; a gradient next to them comes from the KL term.
        yield from seen_in_log(facts, ZERO_ADVANTAGE)
        return
    none = seen.contradicted("no advantage")
    yield from quote(none, STRONG + HINT)
    if not deviations and not shares and not still:
        return
    if seen.zero_loss or seen.zero_losses:
        yield Clue("the loss is 0", HINT, seen.at("first_zero"))
    if seen.zero_norms:
        yield Clue("the gradient norm is 0", FAIR, seen.at("start"))
    elif seen.typical_norm is not None and seen.typical_norm > 0 and none is None:
        yield Clue("gradients are alive", -STRONG, seen.at("start"))


RULE = Rule(
    code="SF214",
    fix=(
        "inspect completions and rewards; use a graded reward, a higher temperature, more generations, a longer "
        "completion limit"
    ),
    beats=(
        "loss-collapse",
        "zero-gradient",
        "all-labels-masked",
        "detached-loss",
        "params-frozen",
        "lr-zero",
        "lr-too-low",
    ),
    plans={"plan.no_group": PROOF},
    mild_plans={"plan.lone_answer": PROOF},
)
