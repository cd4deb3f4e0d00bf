"""Choose the gate of a training, with the reason in words."""

from __future__ import annotations

from stayfinite.core.policy import Policy
from stayfinite.core.spikes import SpikeState
from stayfinite.errors import OptimizerError
from stayfinite.guard.gates.driven_gate import DrivenGate
from stayfinite.guard.gates.gates import DeviceGate, Gate, HostGate, OpenGate, TrainingSetup
from stayfinite.guard.gates.optimizers import FLAGGED, takes_flag


def choose_gate(setup: TrainingSetup, policy: Policy, state: SpikeState) -> tuple[Gate, str]:
    """Return the gate for the optimizer, device and policy, and its cost in words.

    Raises:
        OptimizerError: the policy requires the device gate, but optimizer or scheduler do not support it.
    """
    if setup.driven:
        return DrivenGate(setup), _cost_when_driven(setup, policy)
    if policy.mode == "watch":
        return OpenGate(setup), "no extra cost"
    if policy.mode == "strict":
        return HostGate(setup), "one host sync per step, to stop at the bad one"
    obstacle = _obstacle(setup)
    if policy.gate == "device":
        if obstacle:
            raise OptimizerError(
                f"Policy(gate='device') is not possible: {obstacle[0]}",
                fix=f"{obstacle[1]}, or leave gate at 'auto'",
            )
        return DeviceGate(setup, policy, state), "no host sync"
    on_cpu = _on_cpu(setup)
    if policy.gate == "host" or on_cpu or obstacle:
        if on_cpu:
            return HostGate(setup), "no host sync on the CPU"
        why = (
            f"one host sync per step: {obstacle[0]}; {obstacle[1]}"
            if obstacle
            else "one host sync per step, as configured"
        )
        return HostGate(setup), why
    return DeviceGate(setup, policy, state), "no host sync"


def _cost_when_driven(setup: TrainingSetup, policy: Policy) -> str:
    if policy.gate == "device":
        raise OptimizerError(
            "Policy(gate='device') is not possible: the framework asks at once whether its step was taken",
            fix="leave gate at 'auto'",
        )
    return "no host sync on the CPU" if _on_cpu(setup) else "one host sync per step"


def _on_cpu(setup: TrainingSetup) -> bool:
    return all(device.type == "cpu" for device, _ in setup.roster.places)


def _obstacle(setup: TrainingSetup) -> tuple[str, str] | None:
    """Why the device gate is not possible, and the fix."""
    if not takes_flag(setup.optimizer):
        names = ", ".join(known.__name__ for known in FLAGGED)
        return (
            f"{type(setup.optimizer).__name__} as configured reads no flag on the device",
            f"fused=True avoids it for torch's {names}",
        )
    if not setup.schedule.rewindable:
        return (
            "the scheduler lacks state_dict and load_state_dict, so its step cannot be undone",
            "add both methods to the scheduler",
        )
    return None
