"""The precision plan: the format of each module, the reasons and the gain. Save, load, print, apply."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from stayfinite.core.html import panel, table
from stayfinite.errors import UsageError
from stayfinite.precision import applying
from stayfinite.precision.candidates import HALVES, Assignment
from stayfinite.precision.emulating import RECIPES
from stayfinite.precision.units import collapsed, units_of

if TYPE_CHECKING:
    from torch.amp.grad_scaler import GradScaler

VERSION = 1
BASES = ("fp32", "tf32", "bf16", "fp16")
FP8 = ("fp8", "fp8-rowwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How far a plan may deviate from fp32.

    Examples:
        >>> stayfinite.Budget(cosine=0.99).loss
        0.005
    """

    loss: float = 0.005
    """Relative error of the loss."""
    cosine: float = 0.9
    """Smallest cosine between the gradient and that of fp32."""
    local: float = 0.25
    """Relative error of a single module's output or gradients."""

    def __post_init__(self) -> None:
        if not (self.loss > 0 and 0 < self.cosine <= 1 and self.local > 0):
            raise UsageError(
                f"budget {self}: expected loss and local above 0 and a cosine in 0 to 1",
                fix="Budget(loss=0.005, cosine=0.9)",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One module in the plan's table."""

    name: str
    kind: str
    """Class name."""
    largest: Mapping[str, float]
    """Magnitudes of input, weight, output, grad_output, grad_weight."""
    errors: Mapping[str, Mapping[str, float]]
    """By format: output, grad_input, grad_weight, lost."""
    breaks: Mapping[str, str]
    """Formats that break this module, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One complete assignment that was tried."""

    base: str
    formats: Mapping[str, str]
    loss: float
    cosine: float
    gradient: float
    fits: bool
    """Whether it is within the budget."""
    ms: float | None = None
    """Step time on the card; None if its rates are unknown."""
    saved_gib: float | None = None
    """Activation memory saved against fp32."""
    measured: bool = False
    """Whether the time was measured on the card rather than estimated."""

    @property
    def name(self) -> str:
        """For example `bf16+fp8`."""
        return f"{self.base}+fp8" if any(kind in FP8 for kind in self.formats.values()) else self.base


@dataclass(frozen=True, kw_only=True)
class PrecisionPlan:
    """The format of each module. Made by `stayfinite.plan_precision`, or loaded from a file.

    Examples:
        >>> plan = stayfinite.plan_precision(model, optimizer, batch, forward, formats=["fp32", "bf16"])
        >>> plan.save("precision.json")
        PosixPath('precision.json')
        >>> applied = stayfinite.PrecisionPlan.load("precision.json").apply(model)
    """

    base: str
    """Format of all modules not named in ``formats``; bf16 and fp16 use autocast."""
    formats: Mapping[str, str]
    """Modules in another format: fp32, fp8 or fp8-rowwise."""
    units: Mapping[str, str]
    """All measured modules, with their class names. The plan fits models that have them."""
    card: str = ""
    loss: float = 0.0
    cosine: float = 1.0
    gradient: float = 0.0
    loss_scale: float = 1.0
    """For fp16: a power of two at which no gradient overflows."""
    budget: Budget = field(default_factory=Budget)
    speedup: float | None = None
    """Step time of fp32 over that of the plan, on the same card."""
    measured: bool = False
    """Whether the speed was measured on the card."""
    saved_gib: float | None = None
    rows: tuple[Row, ...] = ()
    options: tuple[Option, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def assignment(self) -> Assignment:
        """The formats alone."""
        return Assignment(base=self.base, formats=self.formats)

    def breaks(self, kind: str) -> tuple[str, ...]:
        """Modules that break in a format."""
        return tuple(row.name for row in self.rows if kind in row.breaks)

    def __str__(self) -> str:
        return self.sentence()

    def _repr_html_(self) -> str:
        """HTML for notebooks: the sentence, the modules that break, and the options tried."""
        breaking = [(row.name, kind, why) for row in self.rows for kind, why in row.breaks.items()]
        tried = [
            (
                each.name,
                "-" if each.ms is None else f"{each.ms:.3g}{'' if each.measured else ' est.'}",
                f"{each.loss:.2g}",
                f"{each.cosine:.5f}",
                sum(kind == "fp32" for kind in each.formats.values()),
                "fits" if each.fits else "over the error budget",
            )
            for each in self.options
        ]
        parts = [table(("module", "breaks in", "why"), breaking)] if breaking else []
        parts += (
            [table(("tried", "ms a step", "loss error", "gradient cosine", "kept in fp32", ""), tried)] if tried else []
        )
        return panel(self.sentence(), self.notes, tone="good", parts=parts)

    def sentence(self) -> str:
        """The plan in one line."""
        parts = [f"{self.base} autocast" if self.base in HALVES else self.base]
        kept = self.assignment.named("fp32")
        if kept:
            parts.append(f"{', '.join(collapsed(kept, self.units))} in fp32")
        eight = self.assignment.named(*FP8)
        linear = sum(kind == "Linear" for kind in self.units.values())
        if eight:
            rowwise = len(self.assignment.named("fp8-rowwise"))
            how = f", {rowwise} of them rowwise" if 0 < rowwise < len(eight) else ", rowwise" if rowwise else ""
            parts.append(f"fp8 for {len(eight)} of {linear} linear layers{how}")
        gains = []
        if self.speedup is not None:
            how = "measured" if self.measured else f"estimated{f' for {self.card}' if self.card else ''}"
            gains.append(f"{self.speedup:.2f}x ({how})")
        if self.saved_gib is not None and abs(self.saved_gib) >= 0.05:
            gains.append(f"{-self.saved_gib:+.1f} GiB")
        gains.append(f"gradient cosine {_cosine(self.cosine)}")
        return f"{'; '.join(parts)}: {', '.join(gains)}"

    def scaler(self, device: str = "cuda") -> GradScaler | None:
        """A gradient scaler that starts at the plan's loss scale; None if the plan is not fp16."""
        if self.base != "fp16":
            return None
        from torch.amp.grad_scaler import GradScaler

        return GradScaler(device, init_scale=self.loss_scale)

    def apply(self, model: nn.Module, *, region: bool = True) -> nn.Module:
        """Make the model compute by this plan, in place. Returns the model.

        Arguments:
            model: the one planned for, or one with the same modules. Apply before `fully_shard` and `torch.compile`.
            region: also wrap the forward pass in autocast, with outputs in fp32. Set to False if the training
                does that, as a guard with ``precision`` does.

        Raises:
            UsageError: the plan does not fit the model, or a plan is already applied.
            MissingExtra: the plan uses fp8 and torchao is not installed.
        """
        self.check(model)
        return applying.apply(model, self.assignment, region=region)

    def undo(self, model: nn.Module) -> nn.Module:
        """Undo `apply`."""
        return applying.undo(model)

    def check(self, model: nn.Module) -> None:
        """Raise UsageError unless the model has the modules named in the plan."""
        have = {name: type(module).__name__ for name, module in units_of(model)}
        missing = [name for name in self.formats if name not in have]
        others = [name for name in self.formats if name in have and _plain(have[name]) != _plain(self.units[name])]
        if missing:
            why = f"it has no {', '.join(collapsed(missing))}"
        elif others:
            why = f"{others[0]} is a {have[others[0]]}, planned as {self.units[others[0]]}"
        else:
            return
        raise UsageError(
            f"the plan does not fit this model: {why}",
            fix="plan again for this model: stayfinite precision --build my_train:build",
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data, with infinities as strings."""
        plain: dict[str, Any] = _without_infinities({"version": VERSION, **asdict(self), "sentence": self.sentence()})
        return plain

    def save(self, path: str | Path) -> Path:
        """Write the plan to a file."""
        path = Path(path)
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | Path) -> PrecisionPlan:
        """Read a plan from a file. Raises UsageError if the file is missing or is not a plan."""
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            why = f": {error.strerror or error}" if isinstance(error, OSError) else f" is not JSON: {error}"
            raise UsageError(f"{path}{why}", fix="stayfinite precision --build ... -o FILE") from error
        return cls.from_json(record, str(path))

    @classmethod
    def from_json(cls, record: Any, where: str = "the plan") -> PrecisionPlan:
        """Read a plan from plain data. Raises UsageError if it is not one."""
        fix = "make one with: stayfinite precision --build my_train:build -o precision.json"
        if not isinstance(record, dict) or not {"version", "base", "formats", "units"} <= set(record):
            raise UsageError(f"{where} is not a precision plan: version, base, formats and units are required", fix=fix)
        if record["version"] != VERSION:
            raise UsageError(f"{where} has plan version {record['version']!r}, expected {VERSION}", fix=fix)
        odd = [kind for kind in record["formats"].values() if kind not in RECIPES]
        if record["base"] not in BASES or odd:
            raise UsageError(
                f"{where}: unknown format {(odd or [record['base']])[0]!r}", fix=f"one of {', '.join(RECIPES)}"
            )
        strange = [name for name in record["formats"] if name not in record["units"]]
        if strange:
            raise UsageError(f"{where}: {strange[0]} is in formats but not in units", fix=fix)
        known = {name: value for name, value in _with_infinities(record).items() if name in cls.__dataclass_fields__}
        known["budget"] = Budget(**known.get("budget", {}))
        known["rows"] = tuple(Row(**row) for row in known.get("rows", ()))
        known["options"] = tuple(Option(**each) for each in known.get("options", ()))
        known["notes"] = tuple(known.get("notes", ()))
        return cls(**known)


def _cosine(value: float) -> str:
    """Format a cosine with one digit after its nines."""
    if value >= 1 or value <= 0:
        return f"{value:.4f}"
    digits = min(8, max(2, 1 - math.floor(math.log10(1 - value))))
    # Round down, so that 0.99999 never prints as 1.
    return f"{math.floor(value * 10**digits) / 10**digits:.{digits}f}"


def _plain(kind: str) -> str:
    """Class name without the prefixes of sharding and fp8."""
    for prefix in ("FSDP", "Float8"):
        kind = kind.removeprefix(prefix)
    return kind


def _without_infinities(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _without_infinities(each) for name, each in value.items()}
    return [_without_infinities(each) for each in value] if isinstance(value, list | tuple) else value


def _with_infinities(value: Any) -> Any:
    if value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, dict):
        return {name: _with_infinities(each) for name, each in value.items()}
    return [_with_infinities(each) for each in value] if isinstance(value, list) else value
