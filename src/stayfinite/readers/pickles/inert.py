"""Read a pickle as data. Nothing is imported, called or built; a hostile one is at worst refused."""

from __future__ import annotations

import pickletools
from typing import IO, Any, NamedTuple, Protocol, cast

from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.machine import Global, Machine

LONGEST_LINE = 1 << 16
# An invalid escape raises a warning, which is an error under `python -W error`.
_SENSELESS = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, Warning)


class Bytes(Protocol):
    """The file interface that a pickle needs."""

    def read(self, size: int, /) -> bytes:
        """Return ``size`` bytes."""

    def readline(self, size: int, /) -> bytes:
        """Return a line, or ``size`` bytes of it."""

    def tell(self) -> int:
        """Return the position."""


class Bounds(NamedTuple):
    """Limits that honest pickles stay within."""

    longest: int
    """Bytes of any string."""

    operations: int


class Inert(NamedTuple):
    """A parsed pickle."""

    value: Any
    globals: tuple[Global, ...]
    """Everything it would have imported, in order."""


def read_inert(file: Bytes, bounds: Bounds) -> Inert:
    """Read one pickle from the current position and stop right after it.

    Raises Malformed if it is not a pickle, is truncated, or exceeds the bounds.
    """
    machine = Machine()
    bounded = cast(IO[bytes], _Bounded(file, bounds.longest))
    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(bounded)):
            if operation.name == "STOP":
                return Inert(machine.stack.pop(), machine.asked)
            if count > bounds.operations:
                raise Malformed(f"its pickle has more than {bounds.operations:,} operations", kind="unread")
            machine.run(operation.name, argument)
    except _SENSELESS as error:
        raise Malformed(f"its pickle is damaged or truncated: {type(error).__name__}: {str(error)[:120]}") from error
    raise Malformed("its pickle has no end")


class _Bounded:
    """A file that refuses reads larger than an honest pickle needs."""

    def __init__(self, file: Bytes, longest: int) -> None:
        self._file = file
        self._longest = longest

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._longest:
            raise ValueError(f"a string of {size:,} bytes")
        return self._file.read(size)

    def readline(self) -> bytes:
        return self._file.readline(LONGEST_LINE)

    def tell(self) -> int:
        return self._file.tell()
