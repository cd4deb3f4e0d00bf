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


WATCHED = {
    "bound": "NaN, inf and gradients above {factor:g}x the median norm",
    "refuse": "NaN, inf and finite spikes beyond {sigmas:g} sigma",
    "ignore": "NaN and inf",
}
"""What is only reported in monitor mode."""


def policy_in_words(policy: Policy) -> str:
    """The policy, and how it judges steps."""
    numbers = {"factor": policy.bound_factor, "probation": policy.probation, "sigmas": policy.sigmas}
    if policy.mode == "watch":
        what = WATCHED[policy.spikes].format(**numbers)
        return f"policy: {policy.name}; monitor only: {what} are reported; every step is taken"
    return f"policy: {policy.name}; NaN and inf are refused; {SPIKES[policy.spikes].format(**numbers)}; {_end(policy)}"


def _end(policy: Policy) -> str:
    """At which refused step the policy does more than refuse: the one after those that it allows."""
    if policy.mode == "strict":
        return "stops at the first refused step"
    limit = "" if policy.max_vetoes is None else f"; limit {policy.max_vetoes + 1} in total"
    return f"after {policy.max_vetoes_in_a_row + 1} refused steps in a row: cut the rate, roll back, stop{limit}"


def data_event_in_words(event: str, details: Mapping[str, Any]) -> str:
    """Line for a data event; empty if it needs no line."""
    place = f"epoch {details['epoch']}, batch {details['batch']}"
    if event == "loader-error":
        items = f", items {', '.join(map(str, details['items'][:SHOWN]))}" if details["items"] else ""
        return f"{place} failed to load and was skipped{items}: {details['error']}"
    if event == "uneven-loaders":
        return f"another rank's loader ended before {place}: the epoch ends here on all ranks"
    return ""
