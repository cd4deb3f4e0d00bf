"""A pickle read as data. Nothing in it is imported, called or built; a hostile one can at worst be refused."""

from __future__ import annotations

import pickletools
from typing import IO, Any, NamedTuple, Protocol, cast

from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.machine import Global, Machine

LONGEST_LINE = 1 << 16
# An escape that nobody writes is a warning, which is an error under `python -W error`.
_SENSELESS = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, Warning)


class Bytes(Protocol):
    """A file, as far as a pickle needs one."""

    def read(self, size: int, /) -> bytes:
        """So many bytes."""

    def readline(self, size: int, /) -> bytes:
        """A line, or so many bytes of it."""

    def tell(self) -> int:
        """Where it stands."""


class Bounds(NamedTuple):
    """What an honest pickle stays within."""

    longest: int
    """Bytes of any string in it."""

    operations: int


class Inert(NamedTuple):
    """A pickle that was read."""

    value: Any
    globals: tuple[Global, ...]
    """Everything that it would have imported, in the order in which it asked."""


def read_inert(file: Bytes, bounds: Bounds) -> Inert:
    """Read one pickle from where the file stands, and leave it standing behind that.

    Arguments:
        file: opened for reading bytes.
        bounds: where it is refused.

    Raises:
        Malformed: it is no pickle, is cut off, or is larger than any honest one.
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
    """A file of which no single read is larger than an honest pickle needs."""

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
