"""Sampled answers: number per prompt, sampling, dtype and length."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting
from stayfinite.inspection.files.algorithm import GROUPED, SAMPLING, VERL
from stayfinite.inspection.files.contradictions import contradict
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.known import number_in
from stayfinite.rules.plans import Remark

GREEDY = 0.05  # a temperature that amounts to greedy decoding
SAMPLED_ANEW = 0.01  # temperature difference that is more than rounding
REASONING = 128  # tokens that are too few for any reasoning

_SIZES = ("num_generations", "rollout_n", "rollout_n_samples_per_prompt")
_LIMITS = frozenset({"max_completion_length", "max_response_length", "generate_max_len", "max_new_tokens"})
_REASONS = lazy_regex(r"<think>|\bgsm8k|\\boxed|\baime\b|openr1-math|chain[- ]of[- ]thought|\breasoning_|deepscaler")
_ELSEWHERE = lazy_regex(r"(?:^|[._])(?:e?val\w*|test|teacher|distil\w*|judge|sapo\w*|generation_kwargs)(?:[._]|$)")
_WITH_DROPOUT = lazy_regex(r"(?:^|/)(?:(?:distil)?gpt2(?:-\w+)?|opt-[\d.]+[mb])$", re.IGNORECASE)
"""Models with dropout in their config; most newer ones have none."""
_VERL_SAMPLER = lazy_regex(r"actor_rollout_ref\.rollout\.dtype$")
_VERL_TRAINER = lazy_regex(
    r"actor_rollout_ref\.actor\.(?:\w+_config|megatron)\.(?:dtype|mixed_precision\.param_dtype)$"
)
_HALVES = {"fp16": "fp16", "float16": "fp16", "half": "fp16", "bf16": "bf16", "bfloat16": "bf16"}


def look_at_sampling(plan: Plan, notes: Notes, algorithm: str) -> None:
    """Check for sampling that leaves nothing to learn from, or differs from the trained policy."""
    causes: tuple[str, ...] = ("grpo-zero-advantage", "sampler-mismatch", "generation-too-short")
    otherwise = [*_sampled_otherwise(plan), *_in_another_format(plan)]
    for name, remarks in (
        ("plan.no_group", list(_no_group(plan, algorithm))),
        ("plan.lone_answer", list(_lone_answer(plan, algorithm))),
        ("plan.sampled_otherwise", otherwise),
        ("plan.dropout_on", list(_dropout_left_on(plan))),
    ):
        if remarks:
            notes.saw(name, remarks)
    for setting in _temperatures(plan) if algorithm in SAMPLING - GROUPED else ():
        if number_in(setting.value) == 0:
            text = f"{setting.name}: 0: the training pass divides logits by the temperature"
            causes = (*causes, contradict(notes, text, setting.where, "temperature=1.0"))
    short = list(_too_short(plan, algorithm))
    if short:
        before = notes.observed.get("plan.generation_limit")
        notes.saw("plan.generation_limit", [*(before.value if before is not None else []), *short])
    engine = next((each for each in plan.settings if each.name == f"{VERL}rollout.name"), None)
    known = [shown(each) for each in (_group_size(plan), *_temperatures(plan)[:1]) if each is not None]
    known += [] if engine is None else [f"engine {engine.value} ({engine.where})"]
    notes.check("Post-training", "groups and sampling", *causes, seen=", ".join(known) or algorithm)


def _group_size(plan: Plan) -> Setting | None:
    return plan.find(*_SIZES) or next((each for each in plan.settings if each.name == "--n_samples_per_prompt"), None)


def _no_group(plan: Plan, algorithm: str) -> Iterator[Remark]:
    """One answer per prompt, or always the same one: every advantage is 0."""
    if algorithm not in GROUPED:
        return
    size = _group_size(plan)
    if size is not None and number_in(size.value) == 1 and not _of_verl(size):
        yield (
            f"{size.name}: 1: with a single answer per group the advantage is 0",
            size.where,
            f"{last_step(size)}=8: at least 2 answers per prompt",
        )
    for setting in _temperatures(plan):
        value = number_in(setting.value)
        if value is not None and 0 <= value <= GREEDY:
            yield (
                f"{setting.name}: {setting.value}: all answers of a group are identical, so the advantage is 0",
                setting.where,
                "temperature=1.0",
            )


def _lone_answer(plan: Plan, algorithm: str) -> Iterator[Remark]:
    """verl uses 0 as the mean of one answer: it trains, but compares nothing."""
    size = _group_size(plan)
    if algorithm in GROUPED and size is not None and number_in(size.value) == 1 and _of_verl(size):
        text = f"{size.name}: 1: a single answer has no group; verl uses its raw reward as advantage"
        yield text, size.where, "rollout.n=8: at least 2 answers per prompt"


def _of_verl(size: Setting) -> bool:
    return size.name.endswith("rollout.n")


def _temperatures(plan: Plan) -> list[Setting]:
    """Temperatures of training samples."""
    return [
        setting
        for setting in plan.settings
        if last_step(setting) == "temperature"
        and not isinstance(setting.value, Expression)
        and not _ELSEWHERE.search(setting.name.lower().lstrip("-"))
    ]


def _sampled_otherwise(plan: Plan) -> Iterator[Remark]:
    """trl divides the training logits by its own temperature, ignoring `generation_kwargs`."""
    for setting in plan.settings:
        found = re.fullmatch(r"(\w+Config)\.generation_kwargs\.temperature", setting.name)
        sampled = number_in(setting.value) if found is not None else None
        if found is None or sampled is None:
            continue
        own = next((each for each in plan.settings if each.name == f"{found.group(1)}.temperature"), None)
        trained = number_in(own.value) if own is not None else 1.0
        if trained is not None and abs(trained - sampled) > SAMPLED_ANEW:
            yield (
                f"{setting.name}: {setting.value}, but the training pass uses temperature {trained:g}",
                setting.where,
                f"temperature={sampled:g} in {found.group(1)}, but nothing in generation_kwargs",
            )


def _dropout_left_on(plan: Plan) -> Iterator[Remark]:
    """trl's GRPO and RLOO keep dropout on, so the training pass differs from sampling and from itself."""
    config = next((each for each in plan.settings if re.match(r"(?:GRPO|RLOO)Config\.", each.name)), None)
    known = [str(each.value) for each in plan.settings if re.fullmatch(r"\w+Trainer\.model", each.name)]
    known += [str(plan.context.model.value)] if plan.context.model is not None else []
    name = next((each for each in known if _WITH_DROPOUT.search(each)), None)
    none = any("drop" in last_step(each) and number_in(each.value) == 0 for each in plan.settings)
    if config is not None and name is not None and not none and plan.on("disable_dropout") is None:
        owner = config.name.partition(".")[0]
        text = f"{name} has dropout, and {owner} keeps it on: token probabilities differ in each pass"
        yield text, config.where, f"{owner}(disable_dropout=True)"


def _in_another_format(plan: Plan) -> Iterator[Remark]:
    """verl: both sides default to bf16; fp16 on one side alone rounds differently."""
    sides = [_half_of(plan, pattern) for pattern in (_VERL_SAMPLER, _VERL_TRAINER)]
    sampler, trainer = ("bf16" if side is None else side[1] for side in sides)
    if {sampler, trainer} != {"fp16", "bf16"}:
        return
    setting = next(side[0] for side in sides if side is not None and side[1] == "fp16")
    text = f"{setting.name}: {setting.value}: the sampler computes in {sampler}, the training pass in {trainer}"
    yield text, setting.where, "the same dtype for actor_rollout_ref.rollout and actor_rollout_ref.actor"


def _half_of(plan: Plan, pattern: re.Pattern[str]) -> tuple[Setting, str] | None:
    """The setting of this name and its 16-bit format, "" for others; None if not set."""
    found = next((each for each in plan.settings if pattern.match(each.name)), None)
    return None if found is None else (found, _HALVES.get(str(found.value).removeprefix("torch.").lower(), ""))


def _too_short(plan: Plan, algorithm: str) -> Iterator[Remark]:
    if algorithm not in SAMPLING or not plan.says(_REASONS):
        return
    for setting in plan.settings:
        if last_step(setting) not in _LIMITS or isinstance(setting.value, Expression):
            continue
        value = number_in(setting.value)
        if value is not None and 0 < value < REASONING and not _ELSEWHERE.search(setting.name.lower().lstrip("-")):
            text = f"{setting.name}: {setting.value}: reasoning is truncated before it ends"
            yield text, setting.where, f"{last_step(setting)}=1024"
            return
