"""torch-audit's ``autopatch(model, optimizer=optimizer, every_n_steps=1)``, as in its quick start."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.failures.adapters.running import answer_of, at_first_call, caught, optimizers_from_now_on, run_program
from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.cases import Answer
from benchmarks.failures.naming import AUDIT
from benchmarks.failures.programs.reading import Program
from benchmarks.failures.steps.record import Training


class TorchAudit(Tool):
    """Findings of its fail level, ERROR and above, are alarms. They are not ranked: any of them may name the cause."""

    name = "torch-audit"
    about = '`autopatch(model, optimizer=optimizer, every_n_steps=1, fail_level="ERROR")`'
    needs = ("torch_audit",)

    def prepare(self) -> None:
        """Load it."""
        self._autopatch: Any = import_module("torch_audit").autopatch
        self._auditors: list[Any] = []

    def _attach(self, model: nn.Module, optimizer: Any) -> None:
        self._auditors.append(
            self._autopatch(model, optimizer=optimizer, every_n_steps=1, reporters=[], fail_level="ERROR")
        )

    def program(self, program: Program, folder: Path) -> Answer:
        """Run it with every model and its optimizer patched."""
        optimizers = optimizers_from_now_on()

        def attach(model: nn.Module) -> None:
            own = {id(each) for each in model.parameters()}
            fitting = (o for o in optimizers if any(id(p) in own for g in o.param_groups for p in g["params"]))
            self._attach(model, next(fitting, None))

        at_first_call(attach)
        return self._answer(run_program(program, folder))

    def step(self, training: Training, folder: Path) -> Answer:  # noqa: ARG002
        """Train with model and optimizer patched."""
        self._attach(training.model, training.optimizer)
        return self._answer(caught(training.run))

    def _answer(self, error: str) -> Answer:
        findings = [each for auditor in self._auditors for each in auditor.finish(report=False).findings]
        told = [each for each in findings if each.severity.value in ("ERROR", "FATAL")]
        if not told:
            return answer_of(error)
        causes = dict.fromkeys(cause for each in told for cause in _causes(each))
        words = "; ".join(dict.fromkeys(f"{each.rule_id} {each.message}" for each in told))
        return Answer(alarmed=True, first=tuple(causes) or answer_of(error).first, words=words[:200])


def _causes(finding: Any) -> tuple[str, ...]:
    if finding.rule_id == "TA100":
        return ("nan-weights", "poisoned-checkpoint") if str(finding.entity).startswith("param") else ()
    if finding.rule_id == "TA301" and re.search(r"\b(inf|nan)\b", finding.message):
        return ("bad-data-row",)
    return AUDIT.get(finding.rule_id, ())
