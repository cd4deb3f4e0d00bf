"""What a guarded run writes, as typed dicts: run.json, a line of steps.jsonl and of events.jsonl, an incident.

Numbers that are not finite are written as NaN and Infinity, which Python's json reads. In these records keys are added
with new abilities; what is listed here is what a reader can rely on.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from stayfinite.core.decision import Action, Code

Version = Literal[1]


class ModelRecord(TypedDict):
    """The model of a launch."""

    parameters: int
    trainable: int
    dtypes: dict[str, int]
    """How many trainable tensors have each dtype."""


class LaunchRecord(TypedDict):
    """One start of a run."""

    time: str
    """ISO 8601, in UTC."""
    versions: dict[str, str]
    platform: str
    devices: list[str]
    seed: int
    model: ModelRecord
    optimizer: dict[str, Any]
    """`class` and `groups`."""
    max_norm: float | None
    """The norm that gradients are clipped to."""
    policy: dict[str, Any]


class RunRecord(TypedDict):
    """A run: every launch of it, the oldest first. Of a recipe also its name and settings."""

    version: Version
    launches: NotRequired[list[LaunchRecord]]
    """Missing until the first guard is built."""


class StepRecord(TypedDict):
    """One optimizer step and what became of it."""

    version: Version
    step: int
    """Counted from 1, refused steps too."""
    loss: float
    grad_norm: float
    """2-norm of all gradients, before clipping."""
    lr: float | None
    loss_scale: float | None
    decision: Action
    code: Code
    parts: NotRequired[dict[str, float]]
    """Losses that the loop named."""
    signals: NotRequired[dict[str, float]]
    """Signals that the loop measured."""


class EventRecord(TypedDict):
    """Something that happened; what else a line holds depends on `event`."""

    version: Version
    time: str
    event: str
    """`start`, `veto`, `bound`, `rollback`, `finding`, `autopsy`, `checkpoint`, `closed`, ..."""
    step: int
    code: NotRequired[str]
    """Why a decision was taken; of a finding its rule."""
    reason: NotRequired[str]
    """As a sentence."""


class DecisionRecord(TypedDict):
    """What the guard did with a step."""

    action: Action
    code: Code
    reason: str


class IncidentRecord(TypedDict):
    """A refused or fatal step that can be run again."""

    version: Version
    time: str
    step: int
    rank: int
    trigger: str
    """What made it an incident."""
    decision: DecisionRecord
    signals: dict[str, Any]
    """The step, as in steps.jsonl and events.jsonl."""
    history: list[StepRecord]
    """The steps before it."""
    precision: dict[str, Any]
    batch: dict[str, Any]
    """`words` describes it; `written` says whether it is in the incident."""
    rows: list[dict[str, Any]]
    device: str
    versions: dict[str, str]
    model: str
    files: dict[str, Any]
    """Each file of the incident with its size and SHA-256."""


class OriginRecord(TypedDict):
    """Where the bad values began."""

    operator: str | None
    forward_operator: str | None
    """Where `operator` is a derivative: what it is the derivative of."""
    module: str
    phase: str
    file: str | None
    line: int | None
    dtype: str | None
    leaf: str | None
    """A parameter or input that held them already."""
    called_from: NotRequired[str | None]
    """The line of your program, `file:line`."""
    inputs: NotRequired[list[dict[str, Any]]]
    first_bad: NotRequired[Any]


class WorldRecord(TypedDict):
    """The step run again with one thing changed."""

    name: str
    """`same` is the step as it was."""
    change: str
    finite: bool
    loss: float | None
    grad_norm: float | None
    seconds: float
    error: NotRequired[str]


class FixRecord(TypedDict):
    """What to do."""

    text: str
    setting: dict[str, Any]
    verified: bool
    """Whether a re-run with this change was finite."""
    by: str | None
    """The world that verified it."""


class SecondFault(TypedDict):
    """A fault behind the first one."""

    cause: str | None
    confidence: float
    origin: OriginRecord | None
    rows: list[int] | None
    fix: FixRecord


class AutopsyRecord(TypedDict):
    """What re-running a bad step has shown."""

    version: Version
    cause: str | None
    """The slug of a rule; null when the step is finite."""
    confidence: float
    verdict: str
    """One paragraph."""
    origin: OriginRecord | None
    rows: list[int] | None
    """Rows of the batch that are bad."""
    chain: list[str]
    """From the origin to the loss."""
    worlds: list[WorldRecord]
    fix: FixRecord
    also: list[SecondFault]
    seconds: float
