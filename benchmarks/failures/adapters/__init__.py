"""The tools that are compared, by name. A tool is added by a class in a file of its own and a line here."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.failures.adapters.anomaly import Anomaly
from benchmarks.failures.adapters.floors import Grep, Majority, Plain
from benchmarks.failures.adapters.lightning import LightningAnomaly, LightningStop
from benchmarks.failures.adapters.stayfinite import Stayfinite
from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.adapters.torch_audit import TorchAudit
from benchmarks.failures.adapters.traincheck import TrainCheck
from benchmarks.failures.adapters.transformers import UnderflowOverflow

TOOLS: dict[str, Callable[[], Tool]] = {
    "stayfinite": Stayfinite,
    "anomaly": Anomaly,
    "underflow": UnderflowOverflow,
    "lightning-anomaly": LightningAnomaly,
    "lightning-stop": LightningStop,
    "torch-audit": TorchAudit,
    "traincheck": TrainCheck,
    "grep": Grep,
    "plain": Plain,
    "majority": Majority,
}
