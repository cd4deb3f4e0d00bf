"""What the tracer writes down: one event an operator that computed something."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Health(IntEnum):
    """The worst value in a tensor."""

    FINITE = 0
    INFINITE = 1
    """Infinities and no NaN: a mask, a log of 0 that nobody uses, or an overflow."""
    NAN = 2


@dataclass(slots=True)
class Place:
    """A line of a program."""

    file: str
    line: int
    function: str


@dataclass(slots=True)
class Event:
    """One operator that was run."""

    number: int
    operator: str
    """`aten.mm`."""
    phase: str
    """`forward` or `backward`."""
    module: str
    """Path of the innermost module that was running; for a backward operator that of its forward one."""
    dtype: str
    """Of its first output: `float16`."""
    place: Place | None
    """The innermost line that is not torch's own."""
    user_place: Place | None
    """The innermost line that belongs to no installed package."""
    sequence: int
    """Number of the autograd node that belongs to it; pairs a backward operator with its forward one."""
    node: str
    """The autograd node that ran it, in backward: `SqrtBackward0`."""
    inputs: tuple[int, ...]
    """Numbers of the events that wrote its inputs; negative ones are leaves."""
    before: tuple[Health, ...]
    """The health of each of those inputs."""
    after: Health
    """The worst of its outputs."""
    constants: tuple[float, ...] = ()
    """Numbers among its arguments: the -inf of a masked_fill."""
    over: tuple[int, ...] = ()
    """Events that had written other parts of the same storage, which this one left alone; they are inputs as well."""
    overload: str = ""
    """`Tensor_Scalar`."""
    called_back: bool = False
    """In backward: a hook or the backward of a custom function ran it, and `place` is its line."""
    close_look: CloseLook | None = None
    """Taken where something turned bad here."""


@dataclass(slots=True)
class CloseLook:
    """What was seen of an operator's inputs and outputs while they were there."""

    inputs: list[TensorLook] = field(default_factory=list)
    output: TensorLook | None = None


@dataclass(slots=True)
class TensorLook:
    """One tensor, in a few numbers."""

    shape: tuple[int, ...]
    dtype: str
    least: float | None
    """The smallest finite value; None when there is none."""
    largest: float | None
    """The largest finite value."""
    nans: int
    infinities: int
    zeros: int
    first_bad: list[list[int]] = field(default_factory=list)
    """Indices of the first values that are not finite."""
    bad_rows: list[int] = field(default_factory=list)
    """Indices along the first dimension that hold one, at most 4096."""
    name: str = ""
    """Of a leaf: a parameter, a buffer or an item of the batch."""
    at_bad: list[float] = field(default_factory=list)
    """Of an input: its values where the output's first bad values are; empty when the shapes do not fit."""
