"""Reject impossible settings, and a start without differing rewards."""

from collections.abc import Callable
from typing import Any

from stayfinite.errors import NotReady, UsageError
from stayfinite.recipes.chat.refusals import refuse_fp16, refuse_written_over
from stayfinite.recipes.policy.groups import Sampled
from stayfinite.recipes.running.timing import refuse_untimed
from stayfinite.recipes.settings import require, require_usual


def refuse_impossible(config: Any) -> None:
    """Raise UsageError for a value out of range, or if a trained adapter would be overwritten."""
    refuse_fp16(config)
    require_usual(config)
    require(
        config, above_zero=("max_grad_norm", "temperature"),
        at_least={
            2: ("group_size",), 1: ("prompts", "updates", "sft_rows"), 0: ("kl", "answer_reward"), 8: ("max_length",),
        },
        shares={"[0, 1)": ("val_share", "warmup_ratio", "answer_reward"), "(0, 1)": ("clip",)},
    )  # fmt: skip
    if config.start is not None and config.model is not None:
        raise UsageError("--start and --model cannot be combined: the start names its model", fix="use one of them")
    refuse_untimed(config)
    refuse_written_over(config)


def refuse_too_few(questions: int, wanted: int) -> None:
    """Raise UsageError if there are too few questions for one sampling round."""
    if questions < wanted:
        raise UsageError(
            f"{questions:,} training questions, but one sampling round needs {wanted:,} (--prompts times --updates)",
            fix="more questions, or fewer --prompts",
        )


def refuse_fewer_than(ranks: int, prompts: int) -> None:
    """Raise UsageError if there are more ranks than questions per step."""
    if prompts < ranks:
        raise UsageError(
            f"{ranks} ranks share the {prompts} questions of a step (--prompts): {ranks - prompts} would have none",
            fix=f"start {prompts} ranks at most, or another --output-dir with more --prompts",
        )


def refuse_equal_rewards(sampled: Sampled, config: Any, say: Callable[[str], None]) -> None:
    """Refuse a start without a gradient: the rewards in every group are equal."""
    right = float((sampled.rewards == 1.0).float().mean())
    cut = sum(sampled.cut) / len(sampled.cut)
    say(
        f"first samples: {right:.1%} of {len(sampled.texts)} answers correct, {sampled.length:.1f} tokens each, "
        f"{cut:.1%} truncated; {sampled.equal:.0%} of groups have equal rewards (no gradient)"
    )
    if sampled.equal < 1.0:
        return
    shown = " ".join(sampled.texts[0].split())[:120]
    problem = (
        f"all {config.group_size} answers to every question get the same reward; one of them: {shown or '(nothing)'!r}"
    )
    fix = "--start with a model that uses the tags, another --temperature, or more --new-tokens"
    if config.check == "stop":
        raise NotReady(f"no gradient: {problem}", fix=f"{fix}. To start anyway: --check warn")
    say(f"check: warning: {problem}. {fix}")
