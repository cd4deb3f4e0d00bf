"""What a diagnosis says: a verdict, and findings ranked by how likely each is the cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stayfinite.core.finding import Finding
from stayfinite.core.html import panel, table
from stayfinite.core.series import RunSeries
from stayfinite.rules.differential import Differential

Verdict = Literal["healthy", "warning", "sick", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file that was given or found, and what became of it."""

    path: str
    read_as: str
    """`log`, `config`, `checkpoint`, `incident`; empty when it was not read."""
    said: str
    """`transformers log, 240 points`, or why it could not be read."""

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return {"path": self.path, "read_as": self.read_as, "said": self.said}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The answer of `diagnose`.

    Examples:
        >>> answer = stayfinite.diagnose("train.log")
        >>> answer.verdict
        'sick'
        >>> sorted(answer.to_json())
        ['differential', 'findings', 'refused', 'sources', 'trouble', 'verdict']
    """

    verdict: Verdict
    """`sick` when the numbers show trouble or a finding is an error or a warning, `warning` when a guard refused the
    bad steps and every step taken is fine, `healthy` when measurements were read and nothing is wrong with them,
    `unknown` otherwise."""
    findings: Sequence[Finding]
    """The likeliest cause first; those of severity info at the end."""
    trouble: Sequence[str]
    """What the numbers show, in a few words each, whatever the cause."""
    sources: Sequence[Source]
    """What was read."""
    refused: Sequence[str] = ()
    """What a guard refused, a sentence a run. It never touched the weights: no trouble of the training."""
    differential: Differential | None = None
    """Where the text cannot decide: the causes that remain and what to try."""
    runs: Sequence[RunSeries] = ()
    """The measurements themselves, for whoever wants to draw them."""

    @property
    def cause(self) -> Finding | None:
        """The likeliest cause, if the run is sick or a warning."""
        return next((finding for finding in self.findings if finding.severity != "info"), None)

    def _repr_html_(self) -> str:
        """For notebooks: the verdict with what the numbers show, the findings, and what was read."""
        tone = {"healthy": "good", "sick": "error"}.get(self.verdict, "warning")
        read = [(each.path, each.said) for each in self.sources]
        sources = table(("file", "read as"), read) if read else ""
        top = panel(self.verdict.capitalize(), [*self.trouble, *self.refused], tone=tone)
        return top + "".join(each._repr_html_() for each in self.findings) + sources

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "trouble": list(self.trouble),
            "refused": list(self.refused),
            "differential": None if self.differential is None else self.differential.to_json(),
            "sources": [source.to_json() for source in self.sources],
        }
