"""All settings of the guard."""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from stayfinite.errors import PolicyError

Mode = Literal["protect", "watch", "strict"]
GateChoice = Literal["auto", "device", "host"]
Precision = Literal["fp16", "bf16", "fp32"]
Spikes = Literal["bound", "refuse", "ignore"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How the guard judges a step. The defaults suit most runs; every field can be set by keyword.

    Examples:
        >>> guard = Guard(model, optimizer, policy=stayfinite.Policy(sigmas=8.0, window=256))
        >>> stayfinite.Policy.watch().mode
        'watch'

    Named policies: ``Policy()``, ``Policy.refuse_spikes()``, ``Policy.only_nonfinite()``, ``Policy.watch()``,
    ``Policy.strict()``.
    """

    mode: Mode = "protect"
    """`protect` refuses bad steps, `watch` only monitors, `strict` stops at the first bad step."""

    spikes: Spikes = "bound"
    """What happens to a finite step far above recent ones: `bound` limits its gradient and watches the next steps,
    `refuse` refuses it, `ignore` takes it."""

    bound_factor: float = 4.0
    """Limit of a gradient, as a multiple of the window's median norm, or `sigmas` robust deviations if that is more.
    Harmless steps raise it, harmful ones lower it."""

    probation: int = 64
    """Steps to watch the loss after an unusual step."""

    gate: GateChoice = "auto"
    """Where a step is refused: `device` (no host sync; fused optimizers), `host` (any optimizer), or `auto`."""

    window: int = 128
    """Accepted steps that the spike test compares with."""

    sigmas: float = 6.0
    """Robust standard deviations above the median that make a spike; `inf` for none."""

    warmup: int = 16
    """Accepted steps before the spike test uses its normal bound; until then it is wider."""

    warmup_widening: float = 4.0
    """How many times wider the bound is during warmup."""

    loss_floor: float = 0.05
    """Smallest spread of the loss, on the asinh scale (about 5 % of a loss above 1)."""

    norm_floor: float = 0.25
    """Smallest spread of the gradient norm, on the log scale (0.25 is about 28 %)."""

    level_change_after: int = 8
    """After this many refused finite spikes, the next is accepted as a new level."""

    max_vetoes_in_a_row: int = 20
    """Refused steps in a row before the next rung: cut, rollback, escalate, stop."""

    max_vetoes: int | None = 256
    """Refused steps in total before the training stops, minus those earned back; None for no limit."""

    forgive_after: int = 20
    """Accepted steps that earn one refused step back, so a long run may refuse a few percent forever."""

    patience: int = 5
    """Refused steps in a row after a rung before the next one, for NaN and inf; finite spikes get `max_vetoes_in_a_row`
    again."""

    calm_steps: int = 100
    """Accepted steps after a rung that end the trouble: the next one starts at the lowest rung."""

    max_cuts: int = 4
    """Most learning rate cuts in a run."""

    cut_factor: float = 0.1
    """Factor of a learning rate cut."""

    cut_steps: int = 50
    """Accepted steps that a cut lasts; it ramps back over as many again."""

    max_rollbacks: int = 4
    """Most rollbacks to a known-good snapshot in a run."""

    max_escalations: int = 2
    """Most changes to a safer precision in a run."""

    precision: Precision | None = None
    """Precision of ``guard.autocast()`` and ``guard.forward`` at the start; None leaves autocast to the loop."""

    snapshots: bool = True
    """Keep known-good states in memory, at most two copies on the host; a rollback needs them."""

    snapshot_share: float = 0.01
    """Share of the training time that snapshots may take."""

    prove_steps: int = 20
    """Accepted steps after which a snapshot counts as known-good."""

    checkpoint_steps: int | None = None
    """Steps between checkpoints on disk; None for none."""

    checkpoint_minutes: float | None = None
    """Minutes between checkpoints on disk; None for none."""

    keep_checkpoints: int = 3
    """Good checkpoints to keep; older ones are removed."""

    keep_frozen: bool = True
    """Save weights without gradients in snapshots and checkpoints too. If off (adapters on a large base), load the same
    frozen weights before resuming; others are refused. Keep it on if something other than the optimizer changes
    them, such as a momentum encoder."""

    max_loader_errors: int = 16
    """Batches of ``guard.batches`` that may fail to load before the training stops."""

    max_incidents: int = 3
    """Refused steps to capture on disk, the first of each kind; 0 captures and explains none."""

    incident_megabytes: int = 512
    """Largest weights to save in an incident; the same limit holds for known-good weights, optimizer state and batch.
    For larger weights a checkpoint is named."""

    autopsy_seconds: float = 60.0
    """Seconds to explain an incident right after the refusal; 0 leaves it to `stayfinite replay`."""

    explain_scale_search: bool = False
    """Capture the first overflow of an fp16 scale search as an incident too."""

    report: bool = True
    """Write report.html in the run directory, at the end and after every incident."""

    desync_steps: int = 100
    """Steps between checks that replicated parameters are the same on every rank; 0 for none."""

    replay_every: int = 0
    """Steps between re-runs (forward and backward, before the update): a device with a different result is named, and
    the step refused. 0 for none. Needs ``forward`` and ``guard.forward``."""

    stall_seconds: float = 120.0
    """With several ranks, seconds without progress before the missing rank is named; adapted to the run's own pauses
    and the collective's timeout. 0 for no watchdog."""

    scale_search: int = 24
    """Overflows in a row that an fp16 scaler may use to find its scale before they count as refused steps."""

    min_loss_scale: float = 1.0
    """Below this loss scale an overflow counts as a refused step, not as a search."""

    sample_every: int = 50
    """Steps between detailed per-parameter samples; 0 for none."""

    zero_steps: int = 8
    """Report this many steps with a loss or gradient norm of exactly 0."""

    constant_steps: int = 32
    """Report this many steps with exactly the same loss."""

    lr_zero_steps: int = 10
    """Report this many steps with a learning rate of 0 (warmup starts with one)."""

    trend_steps: int = 64
    """Accepted steps in a window of the divergence test."""

    trend_windows: int = 4
    """This many windows with rising median loss are a divergence."""

    silent_steps: int = 200
    """This many steps without a gradient make a parameter silent."""

    silent_share: float = 0.05
    """Share of silent parameters to report."""

    def __post_init__(self) -> None:
        for names, fits, expected in _CHECKS:
            for name in names:
                value = getattr(self, name)
                if not (fits(value) or (value is None and name in _OPTIONAL)):
                    raise _refusal(name, value, expected)
        if self.warmup > self.window:
            raise _refusal("warmup", self.warmup, f"at most the window ({self.window})")

    @classmethod
    def refuse_spikes(cls, **settings: Any) -> Policy:
        """Refuse finite spikes too, up to eight in a row. Rare kinds of data may never be learned."""
        return cls(**{"spikes": "refuse"} | settings)

    @classmethod
    def only_nonfinite(cls, **settings: Any) -> Policy:
        """Refuse NaN and infinity; take every finite step exactly as it is."""
        return cls(**{"spikes": "ignore"} | settings)

    @classmethod
    def watch(cls, **settings: Any) -> Policy:
        """Measure and report; never interfere."""
        return cls(mode="watch", **settings)

    @classmethod
    def strict(cls, **settings: Any) -> Policy:
        """Stop at the first bad step with :class:`~stayfinite.errors.BadStep`, before it touches a weight."""
        return cls(mode="strict", **settings)

    @property
    def name(self) -> str:
        """Name of the classmethod that makes it, or ``default``."""
        if self.mode != "protect":
            return self.mode
        return {"bound": "default", "refuse": "refuse_spikes", "ignore": "only_nonfinite"}[self.spikes]

    def to_json(self) -> dict[str, Any]:
        """Plain data in field order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


_LEAST_COUNT = {
    "window": 4, "warmup": 2, "level_change_after": 1, "max_vetoes_in_a_row": 0, "max_vetoes": 0,
    "forgive_after": 1, "scale_search": 0,
    "sample_every": 0, "zero_steps": 1, "constant_steps": 2, "lr_zero_steps": 1, "trend_steps": 4, "trend_windows": 2,
    "silent_steps": 1, "patience": 0, "calm_steps": 1, "max_cuts": 0, "cut_steps": 1, "max_rollbacks": 0,
    "max_escalations": 0, "prove_steps": 1, "checkpoint_steps": 1, "keep_checkpoints": 1, "max_loader_errors": 0,
    "desync_steps": 0, "replay_every": 0, "max_incidents": 0, "incident_megabytes": 0, "probation": 16,
}  # fmt: skip
_POSITIVE = (
    "sigmas", "warmup_widening", "loss_floor", "norm_floor", "min_loss_scale", "silent_share", "cut_factor",
    "snapshot_share", "checkpoint_minutes", "bound_factor",
)  # fmt: skip
_SWITCHES = ("snapshots", "keep_frozen", "explain_scale_search", "report")
_OPTIONAL = ("max_vetoes", "checkpoint_steps", "checkpoint_minutes")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _one_of(name: str, *allowed: object) -> _Check:
    return (name,), lambda value: value in allowed, f"one of {', '.join(map(repr, allowed))}"


def _whole(name: str, least: int) -> _Check:
    return (name,), lambda value: type(value) is int and value >= least, f"a whole number of at least {least}"


_Check = tuple[tuple[str, ...], Callable[[Any], bool], str]
_CHECKS: tuple[_Check, ...] = (
    _one_of("mode", *get_args(Mode)),
    _one_of("spikes", *get_args(Spikes)),
    _one_of("gate", *get_args(GateChoice)),
    _one_of("precision", *get_args(Precision), None),
    *(_whole(name, least) for name, least in _LEAST_COUNT.items()),
    (_POSITIVE, lambda value: _is_number(value) and value > 0, "a number above 0"),
    (("autopsy_seconds", "stall_seconds"), lambda value: _is_number(value) and value >= 0, "a number of at least 0"),
    (_SWITCHES, lambda value: type(value) is bool, "True or False"),
    (("warmup_widening",), lambda value: value >= 1, "at least 1: early steps vary more, not less"),
    (("cut_factor", "snapshot_share", "silent_share"), lambda value: value <= 1, "a share above 0 and up to 1"),
    (("bound_factor",), lambda value: value >= 1, "at least 1: below 1, half of all steps would be bounded"),
)
"""Names of settings, what their values must fulfill, and the same in words."""


def _refusal(name: str, value: object, expected: str) -> PolicyError:
    return PolicyError(f"Policy({name}={value!r}): expected {expected}.", fix=f"use {expected.partition(':')[0]}")


def _checked(build: Callable[..., None]) -> Callable[..., None]:
    """Policy's constructor with its own error for settings that do not exist."""
    known = [each.name for each in fields(Policy)]

    @functools.wraps(build)
    def checked(self: Policy, *values: Any, **settings: Any) -> None:
        if values:
            raise PolicyError(
                f"Policy({values[0]!r:.40}): settings are given by name", fix="for example Policy(mode='watch')"
            )
        for name in settings:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                fix = f"did you mean {close[0]}?" if close else "`help(stayfinite.Policy)` lists all settings"
                raise PolicyError(f"Policy has no setting {name}", fix=fix)
        build(self, **settings)

    return checked


setattr(Policy, "__init__", _checked(Policy.__init__))  # noqa: B010 - a dataclass writes its own
