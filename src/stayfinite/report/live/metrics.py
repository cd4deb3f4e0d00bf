"""Prometheus metrics in the text exposition format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stayfinite.core.run_status import HealthWord, RunStatus

_METRICS: tuple[tuple[str, str, str, Callable[[RunStatus], float | None]], ...] = (
    ("health", "gauge", "0 unknown, 1 healthy, 2 warning, 3 sick, 4 critical", lambda s: _rank(s.health.word)),
    ("running", "gauge", "1 while the run is active", lambda s: float(s.state == "running")),
    ("step", "gauge", "The newest step", lambda s: s.step),
    ("steps_total", "counter", "Steps read", lambda s: s.seen),
    ("refused_steps_total", "counter", "Steps refused by the guard", lambda s: s.refused),
    ("loss", "gauge", "The newest loss", lambda s: s.loss),
    ("grad_norm", "gauge", "The newest gradient norm, before clipping", lambda s: s.grad_norm),
    ("learning_rate", "gauge", "The newest learning rate", lambda s: s.lr),
    ("loss_scale", "gauge", "The newest fp16 loss scale", lambda s: s.loss_scale),
    ("steps_per_second", "gauge", "Pace", lambda s: s.rate),
    ("quiet_seconds", "gauge", "Time since the newest step", lambda s: s.quiet_seconds),
)
"""Name, type, help and value."""


def metrics_text(statuses: Sequence[RunStatus]) -> str:
    """All runs as metrics; unknown values are omitted."""
    lines = []
    for name, kind, what, value_of in _METRICS:
        lines += [f"# HELP stayfinite_{name} {what}", f"# TYPE stayfinite_{name} {kind}"]
        for status in statuses:
            value = value_of(status)
            if value is not None:
                lines.append(f'stayfinite_{name}{{run="{_escaped(status.name)}"}} {_number(float(value))}')
    return "\n".join(lines) + "\n"


def _rank(word: HealthWord) -> float:
    return float(list(HealthWord).index(word))


def _number(value: float) -> str:
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text := repr(value), text)


def _escaped(label: str) -> str:
    plain = label.encode("utf-8", "replace").decode()
    return plain.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
