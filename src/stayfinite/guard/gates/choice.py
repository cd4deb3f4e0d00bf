"""Choose the gate of a training, with the reason in words."""

from typing import ClassVar

from stayfinite.core.policy import Policy
from stayfinite.core.spikes import SpikeState
from stayfinite.errors import OptimizerError
from stayfinite.guard.gates.gates import DeviceGate, Gate, HostGate, JudgedStep, OpenGate, TrainingSetup
from stayfinite.guard.gates.optimizers import FLAGGED, takes_flag
from stayfinite.measure.gradients import clip_gradients
from stayfinite.measure.reading import Reading


class DrivenGate(Gate):
    """Judges a step with one host sync on accelerators.

    It does not step, and clips only unusual gradients. Frameworks ask at once whether the step was taken (for the
    schedule, for logging), so the answer cannot be late.
    """

    sentence: ClassVar[str] = "the framework asks before each optimizer step"

    def take(self, reading: Reading) -> list[JudgedStep]:
        """Judge the step; restore the buffers if it is refused or shows a fault."""
        setup, decided = self._setup, self._heard(reading)
        decision = decided.judgement.decision
        if not decision.refused and (limit := decision.limit) is not None:
            # The framework clips and steps later, with a gradient that is no longer unusual.
            clip_gradients(reading.gradients, None, limit=limit)
        if setup.alarm is not None and decision.notable:
            # In monitor mode the weights change afterwards, so explain the step now.
            with setup.buffers.as_kept():
                setup.alarm(decided)
        return [decided]


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
    if policy.gate == "device" and obstacle:
        raise OptimizerError(
            f"Policy(gate='device') is not possible: {obstacle[0]}", fix=f"{obstacle[1]}, or leave gate at 'auto'"
        )
    if policy.gate != "device" and _on_cpu(setup):
        return HostGate(setup), "no host sync on the CPU"
    if obstacle:
        return HostGate(setup), f"one host sync per step: {obstacle[0]}; {obstacle[1]}"
    if policy.gate == "host":
        return HostGate(setup), "one host sync per step, as configured"
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
