"""Detect the planned RL or preference algorithm by settings that are specific to it."""

from __future__ import annotations

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan

GROUPED = frozenset({
    "grpo", "rloo", "group_norm", "dr_grpo", "grpo_passk", "gspo", "dapo", "grpo_vectorized", "rloo_vectorized", "gpg",
    "opo", "reinforce_baseline", "reinforce_plus_plus_baseline", "optimal_token_baseline", "tir_optimal_token_baseline",
})  # fmt: skip
"""Algorithms that compare several answers to one prompt."""
SAMPLING = GROUPED | {"ppo", "gae", "reinforce", "reinforce_plus_plus", "remax"}
"""Algorithms that sample answers and reward them."""
VERL = "actor_rollout_ref."  # prefix of most verl names
PAIRED = frozenset({"dpo", "kto"})
"""Algorithms that compare a policy with a reference on given answers."""

_CALL = lazy_regex(r"(?:^|\.)(GRPO|RLOO|DPO|KTO)(?:Config|Trainer)\.")
_NAMED = frozenset({"adv_estimator", "advantage_estimator", "rl", "rlhf_type", "stage"})
_MODULE = lazy_regex(r"openrlhf\.cli\.train_(dpo|kto|ppo)")


def algorithm_of(plan: Plan) -> str:
    """`grpo`, `rloo`, `dpo`, ...; empty if unknown."""
    module = ""
    for setting in plan.settings:
        if (found := _CALL.search(setting.name)) is not None:
            return found.group(1).lower()
        if isinstance(setting.value, Expression) or not isinstance(setting.value, str):
            continue
        named = last_step(setting) in _NAMED or setting.name.endswith("advantage.estimator")
        if named and setting.value.lower() in SAMPLING | PAIRED:
            return setting.value.lower()
        if last_step(setting) == "module" and (found := _MODULE.match(setting.value)) is not None:
            module = found.group(1)
    return module
