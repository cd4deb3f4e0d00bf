"""Which gate a training gets, and the sentence that says why."""

from __future__ import annotations

from stayfinite.core.policy import Policy
from stayfinite.core.spikes import SpikeState
from stayfinite.errors import OptimizerError
from stayfinite.guard.gates.driven_gate import DrivenGate
from stayfinite.guard.gates.gates import DeviceGate, Gate, HostGate, OpenGate, Workshop
from stayfinite.guard.gates.optimizers import FLAGGED, takes_flag


def choose_gate(shop: Workshop, policy: Policy, state: SpikeState) -> tuple[Gate, str]:
    """The gate that fits the optimizer, the device and the policy, and what it costs in words.

    Raises:
        OptimizerError: the policy asks for the device gate and the optimizer or the scheduler cannot have it.
    """
    if shop.driven:
        return DrivenGate(shop), _cost_when_driven(shop, policy)
    if policy.mode == "watch":
        return OpenGate(shop), "no extra cost"
    if policy.mode == "strict":
        return HostGate(shop), "one host sync per step, to stop at the bad one"
    obstacle = _obstacle(shop)
    if policy.gate == "device":
        if obstacle:
            raise OptimizerError(
                f"Policy(gate='device') is not possible: {obstacle[0]}",
                fix=f"{obstacle[1]}, or leave gate at 'auto'",
            )
        return DeviceGate(shop, policy, state), "no host sync"
    on_cpu = _on_cpu(shop)
    if policy.gate == "host" or on_cpu or obstacle:
        if on_cpu:
            return HostGate(shop), "no host sync on the CPU"
        why = (
            f"one host sync per step: {obstacle[0]}; {obstacle[1]}"
            if obstacle
            else "one host sync per step, as configured"
        )
        return HostGate(shop), why
    return DeviceGate(shop, policy, state), "no host sync"


def _cost_when_driven(shop: Workshop, policy: Policy) -> str:
    if policy.gate == "device":
        raise OptimizerError(
            "Policy(gate='device') is not possible: the framework asks at once whether its step was taken",
            fix="leave gate at 'auto'",
        )
    return "no host sync on the CPU" if _on_cpu(shop) else "one host sync per step"


def _on_cpu(shop: Workshop) -> bool:
    return all(device.type == "cpu" for device, _ in shop.roster.places)


def _obstacle(shop: Workshop) -> tuple[str, str] | None:
    """What stands in the way of the device gate, and how to move it."""
    if not takes_flag(shop.optimizer):
        names = ", ".join(known.__name__ for known in FLAGGED)
        return (
            f"{type(shop.optimizer).__name__} as configured reads no flag on the device",
            f"fused=True avoids it for torch's {names}",
        )
    if not shop.schedule.rewindable:
        return (
            "the scheduler lacks state_dict and load_state_dict, so its step cannot be undone",
            "add both methods to the scheduler",
        )
    return None
