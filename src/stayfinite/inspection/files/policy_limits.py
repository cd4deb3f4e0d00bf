"""Limits on a policy: beta of DPO and KTO, the KL coefficient, clipping of importance ratios."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting
from stayfinite.inspection.files.algorithm import PAIRED, SAMPLING, VERL
from stayfinite.inspection.files.contradictions import contradict
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.known import is_on, number_in
from stayfinite.rules.plans import Remark

STIFF, LOOSE = 5.0, 1e-3
"""DPO's beta: from 5 on a fifth of a nat saturates the loss; below 0.001 whole answers may drift by 1,000 nats."""
HEAVY = 1.0
"""A KL coefficient at which, with advantages of size 1, the reference outweighs every reward."""
UNCLIPPED = 10.0  # a clip above 10 has no effect; CISPO caps go up to 5

_COEFFICIENTS = {
    "kl_loss_coef": "use_kl_loss", "kl_ctrl_kl_coef": "use_kl_in_reward", "kl_init_coef": "", "init_kl_coef": "",
}  # fmt: skip
"""Each with verl's switch for it."""
_CLIP = lazy_regex(r"(?:.*\.)?(?:clip_ratio|eps_clip)|(?:GRPO|RLOO)Config\.epsilon")
_HIGHER = lazy_regex(r"(?:.*\.)?(?:clip_ratio_high|eps_clip_low_high)|(?:GRPO|RLOO)Config\.epsilon_high")
_UNCLIPPED_LOSSES = frozenset({"gpg", "reinforce"})


def look_at_policy_limits(plan: Plan, notes: Notes, algorithm: str) -> None:
    """Check the scales of the limits that tie the policy to its reference and samples."""
    causes: tuple[str, ...] = ("beta-out-of-scale", "ratio-explosion")
    betas = list(_betas(plan, algorithm))
    if betas:
        notes.saw("plan.beta", betas)
    clip = _upper_clip(plan) if algorithm in SAMPLING else None
    limit = None if clip is None else _upper(clip)
    if clip is not None and limit is not None and limit <= 0:
        text = f"{clip.name}: {clip.value}: ratios are clipped to 1, so only the first update per batch trains"
        causes = (*causes, contradict(notes, text, clip.where, "0.2 is usual"))
    elif clip is not None and limit is not None and limit > UNCLIPPED and not _held(plan):
        text = f"{clip.name}: {clip.value}: no ratio is clipped, and there is no KL term"
        notes.saw("plan.unclipped", [(text, clip.where, "a clip of 0.2, or a KL coefficient of 0.001")])
    known = [shown(each) for each in (_coefficient(plan), clip) if each is not None]
    notes.check("Post-training", "KL coefficient and clip", *causes, seen=", ".join(known) or algorithm)


def _coefficient(plan: Plan) -> Setting | None:
    return plan.find(*_COEFFICIENTS) or next((each for each in plan.settings if _is_beta(each)), None)


def _betas(plan: Plan, algorithm: str) -> Iterator[Remark]:
    if algorithm in PAIRED:
        other_loss = plan.find("loss_type", "pref_loss")
        if other_loss is not None and str(other_loss.value).strip("[]'\" ").lower() not in ("sigmoid", "kto"):
            return  # beta means something else in IPO, SimPO and others
        setting = next((each for each in plan.settings if _is_beta(each)), None)
        value = None if setting is None else number_in(setting.value)
        if setting is None or value is None:
            return
        if value >= STIFF:
            text = f"{setting.name}: {setting.value}: a difference of {2 / value:.2g} nats saturates the loss"
            yield text, setting.where, f"{last_step(setting)}=0.1"
        elif value < LOOSE:
            text = f"{setting.name}: {setting.value}: no KL term keeps the policy near its reference"
            yield text, setting.where, f"{last_step(setting)}=0.1"
    elif algorithm in SAMPLING:
        named = [plan.find(name) for name in _COEFFICIENTS if not _switched_off(plan, name)]
        found = [each for each in named if each is not None]
        for setting in found or [each for each in plan.settings if _is_beta(each)][:1]:
            value = number_in(setting.value)
            fix = f"{last_step(setting)}=0.04 or less; 0 trains without a reference"
            if value is not None and value > HEAVY:
                yield f"{setting.name}: {setting.value}: the KL term outweighs every reward", setting.where, fix
            elif value is not None and value < 0:
                yield f"{setting.name}: {setting.value}: a negative KL term rewards distance", setting.where, fix


def _switched_off(plan: Plan, coefficient: str) -> bool:
    switch = plan.find(_COEFFICIENTS[coefficient]) if _COEFFICIENTS[coefficient] else None
    return switch is not None and is_on(switch.value) is False


def _held(plan: Plan) -> bool:
    """Whether a KL term is, or may be by default, above 0."""
    verl = any(each.name.startswith(VERL) for each in plan.settings)
    for name, switch in _COEFFICIENTS.items():
        setting = plan.find(name)
        value = None if setting is None else number_in(setting.value)
        on = plan.on(switch) is not None if switch else setting is not None
        if on and value != 0:
            return True
    if verl:
        return False  # no KL term by default
    setting = _coefficient(plan)
    if setting is not None:
        return number_in(setting.value) != 0
    return not any(each.name.startswith("GRPOConfig.") for each in plan.settings)


def _upper_clip(plan: Plan) -> Setting | None:
    """The upper clip of the ratio; None if the loss has none."""
    if plan.word("loss_mode", "loss_type") in _UNCLIPPED_LOSSES:
        return None
    known = [each for each in plan.settings if not isinstance(each.value, Expression)]
    for pattern in (_HIGHER, _CLIP):
        for setting in known:
            if pattern.fullmatch(setting.name.lstrip("-")) and setting.value is not None:
                return setting
    return None


def _upper(clip: Setting) -> float | None:
    """The last number: OpenRLHF gives lower and upper bound together."""
    return number_in(clip.value[-1] if isinstance(clip.value, list) and clip.value else clip.value)


def _is_beta(setting: Setting) -> bool:
    """Beta of DPO or GRPO: `DPOConfig.beta`, `beta`, `pref_beta`, `--model.beta`; not of Adam or a schedule."""
    owner = setting.name.lstrip("-").rpartition(".")[0]
    named = last_step(setting) in ("beta", "pref_beta") and not isinstance(setting.value, Expression)
    return named and re.fullmatch(r"(?:\w*(?:GRPO|RLOO|DPO|KTO)Config|model|rlhf|trl)?", owner) is not None
