"""Trace events: one per operator that computed something."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Health(IntEnum):
    """The worst value in a tensor."""

    FINITE = 0
    INFINITE = 1
    """Infinities without NaN: a mask, an unused log of 0, or an overflow."""
    NAN = 2


@dataclass(slots=True)
class Place:
    """A source line."""

    file: str
    line: int
    function: str


@dataclass(slots=True)
class Event:
    """One executed operator."""

    number: int
    operator: str
    """`aten.mm`."""
    phase: str
    """`forward` or `backward`."""
    module: str
    """Path of the innermost running module; for a backward operator, that of its forward operator."""
    dtype: str
    """Dtype of its first output: `float16`."""
    place: Place | None
    """Innermost line outside torch."""
    user_place: Place | None
    """Innermost line outside installed packages."""
    sequence: int
    """Sequence number of its autograd node; pairs a backward operator with its forward operator."""
    node: str
    """Autograd node that ran it, in backward: `SqrtBackward0`."""
    inputs: tuple[int, ...]
    """Events that wrote its inputs; negative numbers are leaves."""
    before: tuple[Health, ...]
    """Health of each input."""
    after: Health
    """Worst health of its outputs."""
    constants: tuple[float, ...] = ()
    """Numbers among its arguments, such as the -inf of a masked_fill."""
    over: tuple[int, ...] = ()
    """Events that wrote other parts of the same storage, not touched by this one; also inputs."""
    overload: str = ""
    """`Tensor_Scalar`."""
    called_back: bool = False
    """In backward, whether a hook or a custom function's backward ran it; `place` is its line."""
    close_look: CloseLook | None = None
    """Recorded if something turned bad here."""


@dataclass(slots=True)
class CloseLook:
    """Summary of an operator's inputs and output."""

    inputs: list[TensorLook]
    output: TensorLook


@dataclass(slots=True)
class TensorLook:
    """Summary of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    least: float | None = None
    """Smallest finite value; None if there is none."""
    largest: float | None = None
    """Largest finite value."""
    nans: int = 0
    infinities: int = 0
    zeros: int = 0
    first_bad: list[list[int]] = field(default_factory=list)
    """Indices of the first non-finite values."""
    bad_rows: list[int] = field(default_factory=list)
    """Indices of bad rows along the first dimension, at most 4096."""
    name: str = ""
    """Name of a leaf: a parameter, a buffer or a batch item."""
    at_bad: list[float] = field(default_factory=list)
    """Values of an input at the output's first bad positions; empty if the shapes do not fit."""

    @property
    def extremes(self) -> list[float]:
        """Smallest and largest finite value, if there is any."""
        return [value for value in (self.least, self.largest) if value is not None]


NO_EVENT = Event(-1, "", "forward", "", "", None, None, -1, "", (), (), Health.FINITE)
"""Stands for the operator that nobody knows."""

NOTHING_SEEN = CloseLook([], TensorLook((), ""))
"""Stands for a look that nobody took."""
