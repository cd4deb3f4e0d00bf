"""Typed dicts for the files of a guarded run: run.json, lines of steps.jsonl and events.jsonl, incidents.

Non-finite numbers are written as NaN and Infinity, which Python's json reads. New versions may add keys; readers can
rely on those listed here.
"""

from typing import Any, Literal, NotRequired, TypedDict

from stayfinite.core.decision import Action, Code

Version = Literal[1]


class ModelRecord(TypedDict):
    """The model of a launch."""

    parameters: int
    trainable: int
    dtypes: dict[str, int]
    """Number of trainable tensors per dtype."""


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
    """Gradient clipping norm."""
    policy: dict[str, Any]


class RunRecord(TypedDict):
    """A run: all its launches, oldest first. For a recipe also its name and settings."""

    version: Version
    launches: NotRequired[list[LaunchRecord]]
    """Missing until the first guard is built."""


class StepRecord(TypedDict):
    """One optimizer step and its decision."""

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
    """Loss terms named by the loop."""
    signals: NotRequired[dict[str, float]]
    """Signals measured by the loop."""


class EventRecord(TypedDict):
    """An event; its further keys depend on `event`."""

    version: Version
    time: str
    event: str
    """`start`, `veto`, `bound`, `rollback`, `finding`, `autopsy`, `checkpoint`, `closed`, ..."""
    step: int
    code: NotRequired[str]
    """Reason code of a decision; for a finding, its rule."""
    reason: NotRequired[str]
    """Reason as a sentence."""


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
    """Code of what was wrong."""
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
    """If `operator` is a derivative, the operator it is the derivative of."""
    module: str
    phase: str
    file: str | None
    line: int | None
    dtype: str | None
    leaf: str | None
    """A parameter or input that was already bad."""
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
    """Result of re-running a bad step."""

    version: Version
    cause: str | None
    """Rule slug; null if the step is finite."""
    confidence: float
    verdict: str
    """One paragraph."""
    why: NotRequired[str]
    """The verdict without origin and fix."""
    origin: OriginRecord | None
    rows: list[int] | None
    """Bad rows of the batch."""
    chain: list[str]
    """From the origin to the loss."""
    worlds: list[WorldRecord]
    fix: FixRecord
    also: list[SecondFault]
    seconds: float
