"""Keep PyTorch training finite, and know why it was not.

The public face: what is listed in ``__all__`` is a promise, everything else may move. Importing it needs no torch; a
name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stayfinite import rl
    from stayfinite.core.decision import Action, Code, Decision
    from stayfinite.core.finding import Finding
    from stayfinite.core.policy import Policy
    from stayfinite.core.signals import Signals
    from stayfinite.diagnosis.diagnose import diagnose
    from stayfinite.diagnosis.diagnosis import Diagnosis
    from stayfinite.doctor.attaching import attach
    from stayfinite.errors import (
        BadStep,
        DeviceFault,
        GuardClosed,
        LoaderFailed,
        LossError,
        MissingExtra,
        ModelError,
        OptimizerError,
        OrderError,
        PoisonedState,
        PolicyError,
        StateError,
        StayfiniteError,
        TrainingDiverged,
        TrainingStopped,
        UsageError,
    )
    from stayfinite.guard.guard import Guard
    from stayfinite.inspection.preflight import preflight
    from stayfinite.precision.plan import Budget, PrecisionPlan
    from stayfinite.precision.planning import plan_precision
    from stayfinite.precision.surgery.keeping import keep_in_range

__version__ = "0.1.0"

_HOMES = {
    "stayfinite.core.decision": ("Action", "Code", "Decision"),
    "stayfinite.core.finding": ("Finding",),
    "stayfinite.core.policy": ("Policy",),
    "stayfinite.core.signals": ("Signals",),
    "stayfinite.diagnosis.diagnose": ("diagnose",),
    "stayfinite.diagnosis.diagnosis": ("Diagnosis",),
    "stayfinite.doctor.attaching": ("attach",),
    "stayfinite.errors": (
        "BadStep", "DeviceFault", "GuardClosed", "LoaderFailed", "LossError", "MissingExtra", "ModelError",
        "OptimizerError", "OrderError", "PoisonedState", "PolicyError", "StateError", "StayfiniteError",
        "TrainingDiverged", "TrainingStopped", "UsageError",
    ),
    "stayfinite.guard.guard": ("Guard",),
    "stayfinite.inspection.preflight": ("preflight",),
    "stayfinite.precision.plan": ("Budget", "PrecisionPlan"),
    "stayfinite.precision.planning": ("plan_precision",),
    "stayfinite.precision.surgery.keeping": ("keep_in_range",),
    "stayfinite.integrations.notebook": ("load_ipython_extension", "unload_ipython_extension"),
    "stayfinite.rl": ("rl",),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Action",
    "BadStep",
    "Budget",
    "Code",
    "Decision",
    "DeviceFault",
    "Diagnosis",
    "Finding",
    "Guard",
    "GuardClosed",
    "LoaderFailed",
    "LossError",
    "MissingExtra",
    "ModelError",
    "OptimizerError",
    "OrderError",
    "PoisonedState",
    "Policy",
    "PolicyError",
    "PrecisionPlan",
    "Signals",
    "StateError",
    "StayfiniteError",
    "TrainingDiverged",
    "TrainingStopped",
    "UsageError",
    "__version__",
    "attach",
    "diagnose",
    "keep_in_range",
    "plan_precision",
    "preflight",
    "rl",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(_HOME_OF[name])
    value = home if home.__name__ == f"{__name__}.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
