"""Sequence lengths: within the model's positions, and sufficient for targets and generation."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting
from stayfinite.inspection.files.contradictions import contradict
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.data.lookups import position_limit
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import number_in

INPUT = frozenset(
    {
        "max_length", "max_seq_length", "max_seq_len", "max_sequence_length", "max_len", "cutoff_len",
        "max_source_length", "max_input_length", "sequence_len", "seq_length", "seq_len", "max_target_length",
        "max_text_length",
    }
)  # fmt: skip
LIMITS = (
    "max_source_length", "max_input_length", "max_seq_length", "max_length", "cutoff_len", "sequence_len",
    "max_seq_len", "max_len", "seq_length", "block_size", "max_target_length", "generation_max_length",
    "max_new_tokens", "max_completion_length", "max_prompt_length",
)  # fmt: skip
_NO_TEXT = lazy_regex(r"(?:\w+\.)*(?:vision|image|visual|audio|speech)_", re.IGNORECASE)
"""Models whose inputs are not tokens; text limits belong to the model next to them."""
DEFAULT_LIMIT = 20  # transformers' default limit of generated tokens


def look_at_lengths(plan: Plan, notes: Notes) -> None:
    """Check position tables, room for answers, and contradictory limits."""
    too_long = _beyond_positions(plan)
    if too_long is not None:
        notes.saw("plan.too_long", [too_long])
    short = _generation_too_short(plan)
    if short is not None:
        notes.saw("plan.generation_limit", [short])
    causes = ["position-out-of-range", "generation-too-short", "all-labels-masked"]
    prompt, whole = plan.number("max_prompt_length"), _named(plan, "max_length")
    # One value used for both is a single limit.
    if prompt is not None and whole is not None and prompt.value >= whole[0] and prompt.where != whole[1].where:
        text = f"{prompt.text} leaves no room for an answer within {whole[1].name}: {whole[1].value} ({whole[1].where})"
        notes.saw("plan.no_room_for_answer", [(text, prompt.where)])
    for least, most in (
        ("min_new_tokens", "max_new_tokens"),
        ("min_length", "max_length"),
        ("doc_stride", "max_seq_length"),
    ):
        low, high = _named(plan, least), _named(plan, most)
        if (
            low is not None
            and high is not None
            and low[0] > 0
            and (low[0] > high[0] or (least == "doc_stride" and low[0] == high[0]))
        ):
            text = f"{low[1].name}: {low[1].value} is not below {high[1].name}: {high[1].value} ({high[1].where})"
            causes.append(contradict(notes, text, low[1].where, f"lower {least}, or raise {most}"))
    seen: dict[str, str] = {}
    for name in LIMITS:
        found = _named(plan, name)
        if found is not None:
            seen.setdefault(name, shown(found[1]))
    notes.check(
        "Lengths",
        "sequence lengths",
        *dict.fromkeys(causes),
        seen=", ".join(list(seen.values())[:4]),
        skipped="" if seen else "not set",
    )


def _named(plan: Plan, name: str) -> tuple[float, Setting] | None:
    """A setting with exactly this last part, and its number; `generate.max_length` is a different one."""
    for setting in plan.settings:
        if (
            last_step(setting) != name
            or isinstance(setting.value, Expression)
            or "generat" in setting.name.partition(".")[0]
        ):
            continue
        value = number_in(setting.value)
        if value is not None and 0 < value < 1e7:
            return value, setting
    return None


def _beyond_positions(plan: Plan) -> tuple[str, str] | None:
    model = plan.context.model
    if model is None and plan.find("max_position_embeddings", "n_positions", "n_ctx") is None:
        return None
    if not plan.trains or (model is not None and _NO_TEXT.match(model.text.lstrip("-"))):
        return None
    if plan.says(r"\brope|rotary|alibi|relative_position|interpolat|position_ids|sliding|stride"):
        return None
    limit = position_limit(Facts(settings=plan.settings))
    longest = max(
        (each for name in INPUT if (each := _named(plan, name)) is not None), key=lambda each: each[0], default=None
    )
    if limit is None or longest is None or longest[0] <= limit[0]:
        return None
    return f"{longest[1].name}: {longest[1].value}, and {limit[1]}", longest[1].where


def _generation_too_short(plan: Plan) -> tuple[str, str] | None:
    """Evaluation by generation with a limit below the target length."""
    generates = plan.on("predict_with_generate")
    if generates is None:
        return None
    target = _named(plan, "max_target_length") or _named(plan, "val_max_target_length")
    limit = plan.number("generation_max_length", "max_new_tokens", "generation_max_new_tokens", "val_max_target_length")
    if limit is not None:
        if target is not None and limit.value < target[0]:
            text = f"{limit.text} is below {target[1].name}: {target[1].value} ({target[1].where}): answers are cut"
            return text, limit.where
        return None
    told = plan.says(
        r"generation_?config|max_new_tokens|gen_kwargs|config\.max_length|generation_max_length|gen_max_len"
    )
    family = plan.family
    if family is None or family.value != "T5" or told:
        return None
    if not plan.scripts or any("generation" in source.text for source in plan.scripts):
        return None
    text = f"{generates.text}, but no length is set: {family.text} stops at {DEFAULT_LIMIT} tokens"
    return text, generates.where
