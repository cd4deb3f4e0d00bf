"""A guard in a few lines, for ``guard.describe()``."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from stayfinite.core.policy import Policy
from stayfinite.guard.gates.gates import TrainingSetup
from stayfinite.measure.roster import SHOWN, whole_size


def training_in_words(model: nn.Module, setup: TrainingSetup) -> str:
    """What is guarded."""
    roster = setup.roster
    numbers = sum(map(whole_size, roster.parameters))
    dtypes = ", ".join(sorted({str(dtype).removeprefix("torch.") for _, dtype in roster.places}))
    clip = "no clipping" if setup.max_norm is None else f"clipped to {setup.max_norm:g}"
    scaler = "" if setup.scaler is None else ", fp16 scaler"
    return (
        f"guard over {type(model).__name__}: {len(roster.names)} tensors, {numbers:,} parameters, {dtypes}\n"
        f"optimizer {type(setup.optimizer).__name__}, {clip}{scaler}"
    )


SPIKES = {
    "bound": "gradients above {factor:g}x the median norm are limited; the next {probation} steps are on probation",
    "refuse": "finite spikes beyond {sigmas:g} sigma are refused too",
    "ignore": "finite steps are taken as they are",
}


def policy_in_words(policy: Policy) -> str:
    """The policy, and how it judges steps."""
    limit = "" if policy.max_vetoes is None else f", stops after {policy.max_vetoes} in all"
    then = "climbs the ladder" if policy.mode == "protect" else "stops"
    row = "" if policy.mode == "watch" else f"; {then} after {policy.max_vetoes_in_a_row} refused steps in a row{limit}"
    what = "monitor only: NaN and inf are reported" if policy.mode == "watch" else "NaN and inf are refused"
    spikes = SPIKES[policy.spikes].format(factor=policy.bound_factor, probation=policy.probation, sigmas=policy.sigmas)
    return f"policy: {policy.name}; {what}; {spikes}{row}"


def data_event_in_words(event: str, details: Mapping[str, Any]) -> str:
    """Line for a data event; empty if it needs no line."""
    place = f"epoch {details['epoch']}, batch {details['batch']}"
    if event == "loader-error":
        items = f", items {', '.join(map(str, details['items'][:SHOWN]))}" if details["items"] else ""
        return f"{place} failed to load and was skipped{items}: {details['error']}"
    if event == "uneven-loaders":
        return f"another rank's loader ended before {place}: the epoch ends here on all ranks"
    return ""
