"""Sequence lengths: within the model's positions, and sufficient for targets and generation."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.data.lookups import position_limit
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import number_in
from stayfinite.rules.plans import Remark

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
_PAIRS = {"min_new_tokens": "max_new_tokens", "min_length": "max_length", "doc_stride": "max_seq_length"}
"""Each must be below the other."""
_HEARS = lazy_regex(r"whisper|wav2vec|hubert|speech|audio", re.IGNORECASE)
_OF_TARGETS = frozenset({"max_target_length", "max_text_length"})
"""Lengths in tokens also where inputs are frames or samples of sound."""
_NO_TEXT = lazy_regex(r"(?:\w+\.)*(?:vision|image|visual|audio|speech)_", re.IGNORECASE)
"""Models whose inputs are not tokens; text limits belong to the model next to them."""
DEFAULT_LIMIT = 20  # transformers' default limit of generated tokens


def look_at_lengths(plan: Plan, notes: Notes) -> None:
    """Check position tables, room for answers, and contradictory limits."""
    notes.remark("plan.too_long", *_beyond_positions(plan))
    notes.remark("plan.generation_limit", *_generation_too_short(plan))
    causes = ["position-out-of-range", "generation-too-short", "all-labels-masked"]
    prompt, whole = plan.number("max_prompt_length"), _named(plan, "max_length")
    # One value used for both is a single limit.
    if prompt is not None and whole is not None and prompt.value >= whole[0] and prompt.where != whole[1].where:
        text = f"{prompt.text} leaves no room for an answer within {whole[1].name}: {whole[1].value} ({whole[1].where})"
        notes.remark("plan.no_room_for_answer", (text, prompt.where))
    for least, most in _PAIRS.items():
        low, high = _named(plan, least), _named(plan, most)
        if low is None or high is None:
            continue
        if low[0] > high[0] or (least == "doc_stride" and low[0] == high[0]):
            text = f"{low[1].name}: {low[1].value} is not below {high[1].name}: {high[1].value} ({high[1].where})"
            causes.append(notes.contradict(text, low[1].where, f"lower {least}, or raise {most}"))
    limits = [shown(found[1]) for name in LIMITS if (found := _named(plan, name)) is not None]
    causes = list(dict.fromkeys(causes))
    notes.check("Lengths", "sequence lengths", *causes, seen=", ".join(limits[:4]), otherwise="not set")


def _named(plan: Plan, name: str) -> tuple[float, Setting] | None:
    """A setting with exactly this last part, and its number; `generate.max_length` is a different one."""
    for setting in plan.known:
        value = number_in(setting.value) if last_step(setting) == name else None
        if value is not None and 0 < value < 1e7 and "generat" not in setting.name.partition(".")[0]:
            return value, setting
    return None


def _beyond_positions(plan: Plan) -> list[Remark]:
    model = plan.context.model
    if model is None and plan.find("max_position_embeddings", "n_positions", "n_ctx") is None:
        return []
    if not plan.trains or (model is not None and _NO_TEXT.match(model.text.lstrip("-"))):
        return []
    if plan.says(r"\brope|rotary|alibi|relative_position|interpolat|position_ids|sliding|stride"):
        return []
    limit = position_limit(Facts(settings=plan.settings))
    names = INPUT & _OF_TARGETS if limit is not None and _HEARS.search(limit[1]) else INPUT
    lengths = [each for name in names if (each := _named(plan, name)) is not None]
    longest, setting = max(lengths, key=lambda each: each[0], default=(0.0, None))
    if limit is None or setting is None or longest <= limit[0]:
        return []
    return [(f"{setting.name}: {setting.value}, and {limit[1]}", setting.where)]


def _generation_too_short(plan: Plan) -> list[Remark]:
    """Evaluation by generation with a limit below the target length."""
    generates = plan.on("predict_with_generate")
    if generates is None:
        return []
    target = _named(plan, "max_target_length") or _named(plan, "val_max_target_length")
    limit = plan.number("generation_max_length", "max_new_tokens", "generation_max_new_tokens", "val_max_target_length")
    if limit is not None:
        if target is None or limit.value >= target[0]:
            return []
        text = f"{limit.text} is below {target[1].name}: {target[1].value} ({target[1].where}): answers are cut"
        return [(text, limit.where)]
    told = r"generation_?config|max_new_tokens|gen_kwargs|config\.max_length|generation_max_length|gen_max_len"
    family = plan.family
    if family is None or family.value != "T5" or plan.says(told):
        return []
    if not plan.scripts or any("generation" in source.text for source in plan.scripts):
        return []
    text = f"{generates.text}, but no length is set: {family.text} stops at {DEFAULT_LIMIT} tokens"
    return [(text, generates.where)]
