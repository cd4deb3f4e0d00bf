"""Typed dicts for the files of a guarded run, and for --json output that is not a single dataclass."""

from typing import Any, Literal, NotRequired, TypedDict

from stayfinite.core.decision import Action, Code
from stayfinite.core.finding import Finding, Severity
from stayfinite.core.run_status import HealthWord, RunStatus
from stayfinite.core.suspects import Verdict as MachineVerdict

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


Verdict = Literal["healthy", "sick", "unknown"]
KnownBy = Literal["proved by re-run", "seen in the running program", "read from text"]
PlainNumber = float | Literal["nan", "inf", "-inf"]
"""A number for strict JSON."""


class ToldFinding(TypedDict):
    """A finding of `doctor`, how it is known, and its source line."""

    code: str
    cause: str
    severity: Severity
    confidence: float
    where: str
    title: str
    evidence: list[str]
    fix: str
    known_by: KnownBy
    place: tuple[str, int]
    """File and line; empty and 0 if there is none."""


class SkippedByScaler(TypedDict):
    """Steps that a loss scaler skipped."""

    steps: int
    of: int
    """All steps, skipped or taken."""
    scale: float
    """Last scale."""


class DoctorRecord(TypedDict):
    """What was seen of a watched program."""

    verdict: Verdict
    findings: list[ToldFinding]
    """Proved findings first."""
    steps: int
    optimizers: list[str]
    models: list[str]
    bad_step: int | None
    refused: int
    skipped_by_scaler: SkippedByScaler | None
    replayed: bool
    """Whether a step was run again."""
    why_not_replayed: str
    not_examined: str
    own_troubles: list[str]
    """Errors while watching."""
    seconds: float
    losses: list[float]
    """First and last loss."""
    exit_code: int
    """Exit code of the program."""
    attached: int
    """Number of guards attached to a framework's trainer."""
    runs: list[str]
    """Their run directories."""
    ended: NotRequired[str]
    """How the program ended, if it did not run to its end."""
    patch: NotRequired[dict[str, Any] | None]


class ReplayRecord(AutopsyRecord):
    """Result of re-running an incident."""

    notes: list[str]
    """Notes for the user."""


class WatchRecord(TypedDict):
    """State of several runs."""

    health: HealthWord
    """Health of the worst run."""
    runs: list[RunStatus]


class AddressRecord(TypedDict):
    """Address of the live page."""

    url: str


class JudgedMachine(TypedDict):
    """One host and device, what was seen on it, and the verdict."""

    host: str
    device: str
    launches: int
    ranks: list[int]
    replayed: int
    transient: int
    persistent: int
    unsteady: int
    bad_steps: int
    places: list[str]
    verdict: MachineVerdict
    why: str


class HardwareRecord(TypedDict):
    """Machines over runs, restarts and ranks; most suspect first."""

    runs: list[str]
    machines: list[JudgedMachine]


class ReportedRun(TypedDict):
    """A run on the page."""

    name: str
    source: str
    verdict: Verdict | Literal["warning"]
    sentence: str
    causes: list[str]
    incidents: int


class ReportRecord(TypedDict):
    """The page that was written."""

    out: str
    bytes: int
    runs: list[ReportedRun]


class PlottedRun(TypedDict):
    """A run in the picture."""

    source: str
    points: int


class PlotRecord(TypedDict):
    """The picture that was drawn."""

    out: str
    runs: list[PlottedRun]


class RuleRecord(TypedDict):
    """The page of a rule."""

    code: str
    slug: str
    severity: Severity
    family: str
    title: str
    fix: str
    sections: dict[str, str]
    """Markdown by heading."""


class RuleLine(TypedDict):
    """A rule in the list."""

    code: str
    slug: str
    severity: Severity
    title: str
    family: str


class EvaluationRecord(TypedDict):
    """Scores of translations, each of 100."""

    version: Literal[1]
    bleu: float
    chrf: float
    mean: float
    rows: int
    beams: int


class TranslationRecord(TypedDict):
    """A line and its translation."""

    source: str
    translation: str


class GenerationRecord(TypedDict):
    """What a model wrote for a prompt."""

    prompt: str
    text: str
    gaps: list[str]


class ChatTestRecord(TypedDict):
    """How many questions a chat model answered right."""

    accuracy: float
    answer_rate: float
    questions: int
    loss: float
    merit: float
    """Sort key for models: accuracy, then answer rate, then loss."""


class ExportRecord(TypedDict):
    """The directory that was written."""

    directory: str
    recipe: str
    kind: str
    files: list[str]


class PrecisionRecord(TypedDict):
    """Precision plan of the modules."""

    version: int
    base: str
    """Format of everything not in `formats`."""
    formats: dict[str, str]
    units: dict[str, str]
    """Examined modules and their classes."""
    card: str
    loss: PlainNumber
    """Relative error of the loss."""
    cosine: PlainNumber
    """Cosine between the gradient and that of fp32."""
    gradient: PlainNumber
    loss_scale: float
    budget: dict[str, float]
    speedup: float | None
    measured: bool
    saved_gib: float | None
    rows: list[dict[str, Any]]
    options: list[dict[str, Any]]
    notes: list[str]
    sentence: str


class UpdatesRecord(TypedDict):
    """Updates lost by 16-bit weights."""

    format: str
    steps: int
    fp32_loss: float
    ways: list[dict[str, Any]]


class RescaleRecord(TypedDict):
    """An equivalent network for fp16, and the proof; further keys are possible."""

    verdict: str
    architecture: str
    share: float
    limit: float
    largest_before: float
    largest_after: float
    modules: dict[str, tuple[float, float]]
    changes: list[dict[str, Any]]
    obstacles: list[dict[str, Any]]
    trials: list[dict[str, Any]]
    logits_difference: float
    loss_difference: float
    refused: str
    data: str
    keep_in_fp32: list[str]


class ErrorRecord(TypedDict):
    """A command failed. The same message is on stderr."""

    command: str
    error: str
    """What happened and where."""
    fix: str
    """What to do; may be empty."""
    exit_code: int


ROOTS: dict[str, Any] = {
    "finding": Finding, "status": RunStatus, "rules": list[RuleLine], "generation": list[GenerationRecord],
}  # fmt: skip
"""Types by name, for those that are not called after it, as `ChatTestRecord` is after `chat_test`; those that are
dataclasses of higher layers are in `listing`."""
