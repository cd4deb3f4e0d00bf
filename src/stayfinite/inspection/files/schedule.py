"""The learning-rate schedule and gradient clipping: a warmup if needed, and no limit switched off where it matters."""

import re
from collections.abc import Sequence

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting, Settings
from stayfinite.inspection.files.learning_rate import counting_clip, counting_rates, model_kind, optimizer_of, trained
from stayfinite.inspection.files.names import first_steps, last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.context import WARMUP
from stayfinite.rules.known import Known, number_in, written
from stayfinite.rules.optimization.planned_rate import EPOCHS, KIND, STEPS
from stayfinite.rules.plans import Remark

_WARMUPS = (
    *WARMUP, "warmup_num_steps", "warmup_epochs", "lr_warmup_iters", "lr_warmup_steps", "warmup_proportion",
    "warmup_tokens",
)  # fmt: skip
_OTHER_LENGTHS = lazy_regex(r"(?:^|\.)(?:eval|valid|test|generat|env|rollout)\w*(?:\.|$)", re.IGNORECASE)
_MOST_SHARE = 0.9  # a warmup of this share leaves almost no training at the full rate

_SHORTER = "shorten the warmup to a tenth of the training or less"

STEEP = {"scratch": 3e-4, "large": 1e-4, "transformer": 5e-4}
"""Rates above which Adam needs a warmup, by what is trained."""


def look_at_schedule(plan: Plan, notes: Notes) -> None:
    """Compare the warmup with the length of the training and the rate."""
    warmup = plan.number(*_WARMUPS)
    too_long, upside_down = _too_long(plan, warmup), _upside_down(plan)
    missing = _missing(plan, warmup)
    notes.remark("plan.schedule", *upside_down)
    notes.remark("plan.warmup_too_long", *too_long)
    notes.remark("plan.no_warmup", *missing)
    seen = [shown(each) for each in (plan.numbered(*_WARMUPS), plan.find(*KIND)) if each is not None]
    notes.check(
        "Schedule",
        "warmup",
        "lr-schedule-bug",
        "no-warmup",
        seen=", ".join(seen),
        otherwise="" if too_long or upside_down or missing else "no warmup and no schedule",
    )


def _too_long(plan: Plan, warmup: Known | None) -> list[Remark]:
    if warmup is None or warmup.value <= 0:
        return []
    name = warmup.text.partition(":")[0].lower()
    share = "ratio" in name or "proportion" in name or "fraction" in name
    if share or (warmup.value < 1 and "token" not in name):
        if warmup.value >= _MOST_SHARE:
            return [(f"{warmup.text}: warmup takes the whole training", warmup.where, _SHORTER)]
        return []
    if "token" in name:
        return []
    unit, names = ("epochs", EPOCHS) if "epoch" in name else ("steps", ("total_num_steps", *STEPS))
    total = _length(plan, names)
    if total is None or total.value <= 0 or warmup.value < total.value:
        return []
    text = f"{warmup.text} takes all {total.value:g} {unit} ({total.where}): the full rate is never reached"
    return [(text, warmup.where, _SHORTER)]


def _length(plan: Plan, names: Sequence[str]) -> Known | None:
    """The planned length under one of these names, not that of an evaluation or episode."""
    of_training = Settings(each for each in plan.settings if not _OTHER_LENGTHS.search(first_steps(each)))
    for name in names:
        setting = of_training.find(name)
        value = None if setting is None or isinstance(setting.value, Expression) else number_in(setting.value)
        if setting is None or value is None:
            continue
        # A script that builds its own TrainingArguments passes the values that count.
        handed = {last_step(each) for each in plan.handed_to_trainer}
        if setting.kind in ("script", "default", "notebook") and handed and last_step(setting) not in handed:
            continue
        return written(setting, value)
    return None


def _upside_down(plan: Plan) -> list[Remark]:
    """A schedule that ends above its start, or before its warmup ends."""
    found: list[Remark] = []
    rate, least = _rate(plan), plan.number("min_lr", "eta_min", "lr_end", "final_lr")
    if rate is not None and least is not None and 0 < rate.value < least.value:
        text = f"{least.text} is above {rate.text} ({rate.where}), where the schedule starts"
        found.append((text, least.where, f"set it below the rate, for example a tenth ({rate.value / 10:g})"))
    decay = plan.number("lr_decay_iters", "lr_decay_steps")
    warm = plan.number("warmup_iters", "lr_warmup_iters", "warmup_steps")
    if decay is not None and warm is not None and 0 < decay.value <= warm.value:
        found.append((f"{decay.text} ends before {warm.text} ({warm.where})", decay.where, _SHORTER))
    return found


def _rate(plan: Plan) -> Known | None:
    rate = next(iter(counting_rates(plan)), None)
    return None if rate is None else written(rate, number_in(rate.value))


def _missing(plan: Plan, warmup: Known | None) -> list[Remark]:
    """No warmup at a rate that needs one, if it is disabled or the framework has none by default."""
    rate = _rate(plan)
    if rate is None or (warmup is None and not plan.is_transformers) or (warmup is not None and warmup.value > 0):
        return []
    warms = any("warm" in last_step(each) and _set(each) for each in plan.settings)
    if warms or plan.says(r"one_?cycle|pct_start|noam|: greedy\b"):
        return []
    what, kind = trained(plan), model_kind(plan)
    steep = STEEP.get("scratch" if what == "scratch" and kind else kind if what == "whole" else "")
    optimizer = optimizer_of(plan)
    if steep is None or rate.value < steep or "adam" not in optimizer or "adafactor" in optimizer:
        return []
    said = "no warmup" if warmup is None else warmup.text
    return [(f"{said}, and {rate.text} is high from the first step", (warmup or rate).where)]


def _set(setting: Setting) -> bool:
    return isinstance(setting.value, Expression) or bool(number_in(setting.value)) or setting.value is True


_ON_BY_DEFAULT = frozenset({"grad_clip", "clip_grad", "clip_grad_norm"})
"""Settings where 0 disables clipping that is on by default, like transformers' `max_grad_norm`. Lightning, DeepSpeed,
fairseq and OpenNMT clip only on request, and their recipes often spell out the 0."""


def look_at_clipping(plan: Plan, notes: Notes) -> None:
    """Record the limit of the gradient norm, or the setting that disables it."""
    setting = counting_clip(plan)
    called = plan.find("clip_grad_norm_", "clip_gradients", "clip_grad_value_")
    if setting is not None:
        limit = number_in(setting.value) or 0.0
        seen = shown(setting) if limit > 0 else f"off: {shown(setting)}"
        recurrent = plan.says(r"(?:\b|_)(?:lstm|gru|rnn)(?:\b|_)")
        # A script's own default does not disable it.
        by_default = setting.kind != "default" and (last_step(setting) in _ON_BY_DEFAULT or plan.is_transformers)
        if limit <= 0 and (by_default or recurrent):
            because = "; gradients through time grow with the length" if recurrent else ""
            text = f"{setting.name}: {setting.value} disables clipping{because}"
            notes.remark("plan.clipping_off", (text, setting.where))
    elif called is not None:
        seen = f"{called.name} ({called.where})"
    else:
        seen = "default, 1.0 in transformers" if plan.is_transformers else ""
    notes.check("Clipping", "gradient clipping", "no-clipping", seen=seen, otherwise="not set")
