"""``stayfinite check --memory``: compare the memory of a training step with a GPU."""

import re
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, get_args

from stayfinite.errors import UsageError
from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.memory.columns import Column, advice, columns, size, table_of
from stayfinite.inspection.memory.estimating import optimizer_named
from stayfinite.inspection.memory.finding_the_model import find_shape, numbers_on_disk
from stayfinite.inspection.memory.plan import PRECISIONS, AttentionChoice, BaseChoice, BiasKernel, Plan, Shape
from stayfinite.inspection.notes import Notes
from stayfinite.rules.cards import Card, card_asked_for


class Installed(NamedTuple):
    """The version, and the kernel for T5's attention."""

    version: str
    """Empty if it is not installed."""
    bias_kernel: BiasKernel


def installed_transformers() -> Installed:
    """Inspect the installed transformers; if there is none, assume the middle variant."""
    try:
        spec = find_spec("transformers")
        version = metadata.version("transformers")
    except (ImportError, ValueError):
        return Installed("", "math")
    if spec is None or spec.origin is None:
        return Installed("", "math")
    return Installed(version, bias_kernel_in(Path(spec.origin).parent))


def bias_kernel_in(package: Path) -> BiasKernel:
    """The kernel for attention with a bias in this transformers package."""
    try:
        model = (package / "models" / "t5" / "modeling_t5.py").read_text(encoding="utf-8")
        bridge = (package / "integrations" / "sdpa_attention.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "math"
    if "_supports_sdpa = True" not in model:
        return "eager"
    return "efficient" if "position_bias_mask.contiguous()" in bridge else "math"


HOPPER = (9, 0)
MOST = 1 << 24  # limit of rows, tokens and ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """A training to estimate. Invalid values raise UsageError with the flag name."""

    model: str
    """A directory, a config.json, or a well-known name."""
    batch: int = 1
    """Rows per batch."""
    seq: int = 512
    """Tokens per row."""
    target_seq: int | None = None
    """Decoder tokens per row; default: `seq`."""
    optimizer: str = "adamw"
    """A name in `optimizers.OPTIMIZERS`."""
    lora: int | None = None
    """Rank of the adapters, if only they are trained."""
    gpu: str | None = None
    """The GPU to compare with."""
    precision: str | None = None
    """fp32, bf16, fp16 or pure-bf16; default: all."""
    checkpointing: bool | None = None
    """Gradient checkpointing; default: both."""
    attention: AttentionChoice | None = None
    """Default: as transformers chooses."""
    padded: bool = False
    """Whether rows differ in length."""
    base: BaseChoice = "full"
    """Storage of frozen weights."""
    accumulate: bool = False
    """Whether gradients are accumulated over batches."""

    def __post_init__(self) -> None:
        for name in ("batch", "seq", "target_seq", "lora"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST:
                raise UsageError(f"{_flag(name)} should be a whole number from 1 to {MOST:,}, not {value}")
        for name, allowed in (
            ("attention", get_args(AttentionChoice)),
            ("base", get_args(BaseChoice)),
            ("precision", tuple(PRECISIONS)),
        ):
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise UsageError(f"{_flag(name)} should be one of {', '.join(allowed)}, not {value!r}")
        if self.base != "full" and not self.lora:
            raise UsageError(f"--base {self.base} weights cannot be trained", fix=("add --lora 16, for example"))

    def refuse_for(self, shape: Shape) -> None:
        """Raise UsageError if rows exceed the model's positions, or adapters its width."""
        if shape.positions and self.seq > shape.positions:
            raise UsageError(
                f"--seq {self.seq} exceeds the {shape.positions} positions of {shape.name}",
                fix=f"--seq {shape.positions} at most",
            )
        if self.lora and self.lora > shape.width:
            raise UsageError(
                f"--lora {self.lora} exceeds the width of {shape.name}, {shape.width}", fix=("--lora 16, for example")
            )

    def plan(self, card: Card | None, library: Installed) -> Plan:
        """The step in fp32 without checkpointing; columns vary both."""
        return Plan(
            **{name: getattr(self, name) for name in ("batch", "seq", "padded", "base", "accumulate")},
            target_seq=self.target_seq or self.seq,
            precision=PRECISIONS["fp32"],
            attention=self.attention or "sdpa",
            bias_kernel=library.bias_kernel,
            optimizer=optimizer_named(self.optimizer).name,
            lora=self.lora or 0,
            flash=card is None or card.flash_attention_2,
            hopper=card is None or card.capability >= HOPPER,
        )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_WAYS = {
    "eager": "in plain operators, keeping all scores",
    "math": "sdpa; T5's bias rules out fast kernels, so all scores are kept",
    "efficient": "sdpa; the memory-efficient kernel supports T5's bias",
}


def inspect_memory(request: MemoryRequest) -> Inspection:
    """Estimate a training step's memory from the shape of its model. Raises UsageError for an invalid request."""
    shape = find_shape(request.model)
    request.refuse_for(shape)
    card = card_asked_for(request.gpu) if request.gpu is not None else None
    card = None if card is not None and card.is_none else card
    library = installed_transformers()
    found = columns(shape, request.plan(card, library), card, request.precision, request.checkpointing)
    notes = _notes(shape, found, card, request.gpu or "")
    if shape.family == "t5" and request.attention != "eager":
        notes.heading("attention", _attention_of(library))
    disagreement = _weights_on_disk(request, found[0])
    if disagreement:
        notes.heading("weights", disagreement)
    return conclude(notes)


def _notes(shape: Shape, found: list[Column], card: Card | None, asked: str) -> Notes:
    notes = Notes()
    first = found[0].estimate
    notes.heading("model", f"{shape.name}, {first.parameters:,} parameters, {first.trained:,} of them trained")
    peaks = [column.estimate.peak for column in found]
    span = size(min(peaks)) if len(peaks) == 1 else f"{size(min(peaks))} to {size(max(peaks))}"
    notes.check("Memory", "memory of a training step", seen=f"peak {span}")
    if card is None:
        notes.check("Memory", "peak memory on the GPU", "out-of-memory", skipped="no GPU given: --gpu T4, for example")
    else:
        suggestion = advice(shape, found, card)
        notes.heading("GPU", f"{card.name}, {card.memory_gib:g} GiB{_other_sizes(card, asked)}")
        notes.heading("suggestion", suggestion)
        notes.saw("memory.what_fits", suggestion)
        running = [column for column in found if column.runs] or found
        best = min(running, key=lambda column: column.share or 0.0)
        notes.saw("memory.estimate_share", best.share, f"{best.name} on {card.name}")
        notes.check("Memory", "peak memory on the GPU", "out-of-memory", seen=_seen(found))
    for again in (False, True):
        alike = [column for column in found if column.plan.checkpointing is again]
        if alike:
            notes.tables.append(table_of(shape, alike, card))
    return notes


def _other_sizes(card: Card, asked: str) -> str:
    """How to name another size, unless one was named."""
    others = [each for each in card.sizes if each != card.memory_gib]
    if not others or re.search(r"\d\s*gi?b?\b", asked, re.IGNORECASE):
        return ""
    flags = [f"--gpu {card.name.replace(' ', '-')}-{each:g}GB" for each in others]
    return f" (assumed; for another size: {' or '.join(flags)})"


def _seen(found: list[Column]) -> str:
    runs = [column for column in found if column.runs]
    if not runs:
        return "in memory only: the GPU has no bf16"
    fitting = [column.name for column in runs if column.fits]
    return "as it is" if len(fitting) == len(runs) else f"with {'; '.join(fitting)}"


def _attention_of(library: Installed) -> str:
    known = f"transformers {library.version}" if library.version else "transformers is not installed"
    return f"{_WAYS[library.bias_kernel]} ({known})"


def _weights_on_disk(request: MemoryRequest, column: Column) -> str:
    """A note if the weights next to a config differ in number from it; empty if not."""
    numbers = numbers_on_disk(request.model)
    described = column.estimate.parameters - (column.estimate.trained if request.lora else 0)
    if numbers is None or 0.98 < numbers / described < 1.02:
        return ""
    return f"{numbers:,} numbers on disk, {described:,} in the config, which is used"
