"""Read a pickle as data. Nothing is imported, called, built or even hashed; a hostile one is at worst refused.

The stack machine has inert values only: a call becomes a ``Made``, a dict a list of pairs. Hashing nested tuples can
take forever.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, Protocol, cast

from stayfinite.readers.malformed import Malformed


class Global(NamedTuple):
    """A class or function, by name only."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Member(NamedTuple):
    """An enum member, by name only: some Python 3.11 releases pickle ``getattr`` of class and name."""

    kind: Global
    name: str


class Persistent(NamedTuple):
    """A reference to something outside the pickle: in torch files, a storage."""

    key: Any


@dataclass(slots=True, eq=False)
class Made:
    """The result of a call that was not made, with the state set on it later."""

    callee: Any
    args: Any
    names: Any = None
    """Keyword arguments, if any."""

    state: Any = None
    items: list[Any] = field(default_factory=list)
    pairs: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Pairs:
    """A dict as a list of pairs."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)


_MARK = object()
_GETATTR = (Global("builtins", "getattr"), Global("__builtin__", "getattr"))


class Machine:
    """Stack, memo and referenced names. Raises ``ValueError`` and similar for nonsense."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals: dict[Global, None] = {}
        self._lookups = 0
        """Uses of ``getattr`` other than to look up an enum member."""

    @property
    def asked(self) -> tuple[Global, ...]:
        """The referenced globals; ``getattr`` only if it was used for more than enum members."""
        return tuple(each for each in self.globals if self._lookups or each not in _GETATTR)

    def run(self, operation: str, argument: Any) -> None:
        """Execute one opcode."""
        if operation in _PUSHED:
            self.stack.append(argument)
        elif (plain := _PLAIN.get(operation)) is not None:
            plain(self)
        else:
            _WITH_ARGUMENT[operation](self, argument)

    def since_mark(self) -> list[Any]:
        """Pop everything above the last mark, and the mark."""
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                taken = self.stack[at + 1 :]
                del self.stack[at:]
                return taken
        raise ValueError("a mark is missing")

    def take(self, count: int) -> list[Any]:
        taken = self.stack[-count:]
        if len(taken) < count:
            raise ValueError("a value is missing")
        del self.stack[-count:]
        return taken

    def push(self, value: Any) -> None:
        if isinstance(value, Global) and value in _GETATTR:
            self._lookups += 1
        self.stack.append(value)

    def push_named(self, module: Any, name: Any) -> None:
        self.push(self.named(module, name))

    def named(self, module: Any, name: Any) -> Global:
        """Record a global and return it."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("a global without a name")
        found = Global(module, name)
        self.globals[found] = None
        return found

    def put(self, flat: list[Any]) -> None:
        """Add keys and values to the dict on top, or its stand-in."""
        self.stack[-1].pairs.extend(zip(flat[::2], flat[1::2], strict=True))

    def make_dict(self) -> None:
        flat = self.since_mark()
        self.push(Pairs())
        self.put(flat)

    def append(self, values: list[Any]) -> None:
        """Append values to the list on top, or its stand-in."""
        target = self.stack[-1]
        (target.items if isinstance(target, Made) else target).extend(values)

    def call(self) -> None:
        """Replace a callee and its arguments by a ``Made``."""
        callee, args = self.take(2)
        if isinstance(callee, Global) and callee in _GETATTR and (member := _member(args)) is not None:
            self._lookups -= 1
            self.push(member)
            return
        if isinstance(callee, Member):
            self._lookups += 1  # this call is not an enum lookup
        self.push(Made(callee, args))

    def call_with_names(self) -> None:
        """Like ``call``, with keyword arguments."""
        callee, args, names = self.take(3)
        self.push(Made(callee, args, names))

    def call_since_mark(self) -> None:
        """Like ``call``, with callee and arguments above a mark."""
        callee, *args = self.since_mark()
        self.push(Made(callee, tuple(args)))

    def instance(self, module: str, name: str) -> None:
        """Like ``call``, with the arguments above a mark and the callee by name."""
        self.push(Made(self.named(module, name), tuple(self.since_mark())))

    def build(self) -> None:
        """Set the state on top on the object below it."""
        state = self.stack.pop()
        if isinstance(self.stack[-1], Made):
            self.stack[-1].state = state

    def remember(self, number: int) -> None:
        """Store the top value in the memo."""
        self.memo[number] = self.stack[-1]


def _member(args: Any) -> Member | None:
    """The enum member, if the arguments are a class and a name in capitals."""
    if not isinstance(args, tuple) or len(args) != 2:
        return None
    kind, name = args
    capitals = isinstance(name, str) and name.isidentifier() and name.isupper() and not name.startswith("_")
    return Member(kind, name) if capitals and isinstance(kind, Global) else None


_PUSHED = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8",
})  # fmt: skip
_PLAIN: dict[str, Callable[[Machine], Any]] = {
    "MARK": lambda m: m.push(_MARK),
    "POP": lambda m: m.stack.pop(),
    "POP_MARK": Machine.since_mark,
    "DUP": lambda m: m.push(m.stack[-1]),
    "NONE": lambda m: m.push(None),
    "NEWTRUE": lambda m: m.push(True),
    "NEWFALSE": lambda m: m.push(False),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda m: m.push([])),
    "EMPTY_TUPLE": lambda m: m.push(()),
    "EMPTY_DICT": lambda m: m.push(Pairs()),
    **dict.fromkeys(("LIST", "FROZENSET"), lambda m: m.push(m.since_mark())),
    "TUPLE": lambda m: m.push(tuple(m.since_mark())),
    "TUPLE1": lambda m: m.push(tuple(m.take(1))),
    "TUPLE2": lambda m: m.push(tuple(m.take(2))),
    "TUPLE3": lambda m: m.push(tuple(m.take(3))),
    "DICT": Machine.make_dict,
    "APPEND": lambda m: m.append(m.take(1)),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda m: m.append(m.since_mark())),
    "SETITEM": lambda m: m.put(m.take(2)),
    "SETITEMS": lambda m: m.put(m.since_mark()),
    "MEMOIZE": lambda m: m.remember(len(m.memo)),
    "STACK_GLOBAL": lambda m: m.push_named(*m.take(2)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), Machine.call),
    "NEWOBJ_EX": Machine.call_with_names,
    "OBJ": Machine.call_since_mark,
    "BUILD": Machine.build,
    "BINPERSID": lambda m: m.push(Persistent(m.stack.pop())),
    "NEXT_BUFFER": lambda m: m.push(None),
    "READONLY_BUFFER": lambda m: None,  # noqa: ARG005
}
_WITH_ARGUMENT: dict[str, Callable[[Machine, Any], Any]] = {
    "PROTO": lambda m, a: None,  # noqa: ARG005
    "FRAME": lambda m, a: None,  # noqa: ARG005
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), Machine.remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda m, a: m.push(m.memo[a])),
    "GLOBAL": lambda m, a: m.push_named(*a.split(" ", 1)),
    "INST": lambda m, a: m.instance(*a.split(" ", 1)),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), lambda m, a: m.push_named("copyreg", f"extension {a}")),
    "PERSID": lambda m, a: m.push(Persistent(a)),
}


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
