"""The rates and the clipping that a script hands to its optimizer or trainer: they count before all others it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import RATES, TRAINER_ARGUMENTS, Plan
from stayfinite.rules.context import CLIP
from stayfinite.rules.known import number_in

OPTIMIZERS = lazy_regex(
    r"\b(\w*adam\w*|sgd|adafactor|lion\w*|prodigy|rmsprop|lamb|lars|adagrad|muon|nag|adadelta|lbfgs|rprop|asgd|signsgd|"
    r"\w*shampoo|soap|d-?adapt\w*)\b",
    re.IGNORECASE,
)
_TAKERS = {
    "rate": lazy_regex(rf"(?:^|\.)(?:{TRAINER_ARGUMENTS}|\w*Trainer|\w*[Oo]ptim\w*)$"),
    "clip": lazy_regex(rf"(?:^|\.)(?:{TRAINER_ARGUMENTS}|\w*Trainer|clip_grad\w*)$"),
}


def own_optimizer(setting: Setting) -> str:
    """`sgd` of `torch.optim.SGD.lr`: the optimizer that gets this rate; empty for another call."""
    call, _, name = setting.name.rpartition(".")
    found = OPTIMIZERS.search(call) if name == "lr" else None
    return "" if found is None else found.group().lower()


def handed_rates(plan: Plan) -> list[Setting] | None:
    """The known rates that scripts hand on, certain ones if there are any; None if they hand on none."""
    return _known(plan, RATES, _handed(plan, "rate", RATES))


def handed_clips(plan: Plan) -> list[Setting] | None:
    """The known limits of the gradient norm that scripts hand on; None if they hand on none."""
    return _known(plan, CLIP, _handed(plan, "clip", CLIP))


def counting_rates(plan: Plan) -> list[Setting]:
    """The rates that may count, the likeliest first: several where a script has several optimizers."""
    first = plan.numbered(*RATES)
    if first is not None and first.kind in ("command", "file", "log"):
        return [first]
    handed = handed_rates(plan)
    return handed if handed is not None else [] if first is None else [first]


def counting_clip(plan: Plan) -> Setting | None:
    """The limit of the gradient norm that counts."""
    first = plan.numbered(*CLIP)
    if first is not None and first.kind in ("command", "file", "log"):
        return first
    handed = handed_clips(plan)
    return first if handed is None else next(iter(handed), None)


def _handed(plan: Plan, what: str, names: Sequence[str]) -> list[Setting]:
    """Arguments of these names in calls of an optimizer, a trainer or its arguments, or of clipping."""
    found = []
    for setting in plan.settings:
        call = setting.name.rpartition(".")[0]
        if not call or setting.kind not in ("script", "notebook", "default") or last_step(setting) not in names:
            continue
        to_optimizer = what == "rate" and (own_optimizer(setting) or "optim" in setting.bound_to.lower())
        if (to_optimizer or _TAKERS[what].search(call)) and setting.where not in plan.switched_off:
            found.append(setting)
    return found


def _known(plan: Plan, names: Sequence[str], handed: list[Setting]) -> list[Setting] | None:
    if not handed:
        return None
    known = [each for each in handed if number_in(each.value) is not None and not isinstance(each.value, Expression)]
    if known:
        return [each for each in known if not each.doubtful] or known
    # `lr=config.lr` of a config that is read elsewhere: what has this name counts, and nothing else.
    words = {word for each in handed if isinstance(each.value, Expression) for word in re.findall(r"\w+", each.value)}
    meant = plan.numbered(*(name for name in names if name in words))
    return [] if meant is None else [meant]
