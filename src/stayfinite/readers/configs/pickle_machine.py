"""A machine that runs a pickle's opcodes and calls nothing: every global is a name, every call a record of itself.

Python's own unpickler imports what a pickle names and calls it. Here nothing is imported: `GLOBAL os system` gives the
words `os.system`, and `REDUCE` notes that somebody wanted it called. Objects come out as ``Standin``.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any

MOST_OPCODES = 2_000_000


class BrokenPickle(Exception):
    """The opcodes end early or make no sense."""


@dataclass(slots=True, eq=False)
class Standin:
    """An object of a class that was not loaded, or a call that was not made."""

    name: str
    """`transformers.training_args.TrainingArguments`."""
    arguments: Any = None
    state: Any = None
    called: bool = False
    items: list[Any] = field(default_factory=list)
    """What was appended or set on it, if it stands for a list or a dict of its own class."""


class _Mark:
    """Where a tuple, list or dict begins on the stack."""


_MARK = _Mark()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Any] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": list}


def run_pickle(data: bytes) -> tuple[Any, int]:
    """The object that the pickle at the start of the bytes describes, and where the pickle ends."""
    machine = _Machine()
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            if opcode.name == "STOP":
                return machine.pop(), (position or 0) + 1
            machine.step(opcode.name, argument)
            if count >= MOST_OPCODES:
                raise BrokenPickle(f"more than {MOST_OPCODES:,} opcodes")
    except BrokenPickle:
        raise
    except Exception as error:
        # The decoder and a stack that a liar filled fail in more ways than can be listed; all mean the same.
        raise BrokenPickle(f"{type(error).__name__}: {error}"[:200]) from None
    raise BrokenPickle("no end")


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        return self._stack.pop()

    def step(self, name: str, argument: Any) -> None:
        """One opcode."""
        stack = self._stack
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in {"PROTO", "FRAME"}:
            pass
        elif name in {"BINPUT", "LONG_BINPUT", "PUT"}:
            self._memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in {"BINGET", "LONG_BINGET", "GET"}:
            stack.append(self._memo[int(argument)])
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._to_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name in {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "DICT", "FROZENSET"}:
            self._gather(name)
        elif name in {"APPEND", "APPENDS", "ADDITEMS", "SETITEM", "SETITEMS"}:
            self._put_in(name)
        elif name in {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD"}:
            self._stand_in(name, argument)
        elif name in {"PERSID", "BINPERSID"}:
            stack.append(Standin("storage", argument if name == "PERSID" else stack.pop()))
        elif name in {"EXT1", "EXT2", "EXT4", "NEXT_BUFFER"}:
            stack.append(Standin(name.lower()))
        elif name == "READONLY_BUFFER":
            pass
        else:  # what is left are numbers and strings
            stack.append(argument)

    def _to_mark(self) -> list[Any]:
        stack = self._stack
        for index in range(len(stack) - 1, -1, -1):
            if stack[index] is _MARK:
                items = stack[index + 1 :]
                del stack[index:]
                return items
        raise BrokenPickle("no mark")

    def _gather(self, name: str) -> None:
        if name[-1] in "123":
            count = int(name[-1])
            items = self._stack[-count:]
            del self._stack[-count:]
        else:
            items = self._to_mark()
        if name == "DICT":
            self._stack.append({_key(key): value for key, value in zip(items[::2], items[1::2], strict=False)})
        else:
            self._stack.append(tuple(items) if name.startswith("T") else items)

    def _put_in(self, name: str) -> None:
        items = (
            self._to_mark() if name.endswith("S") else [self._stack.pop() for _ in range(1 + (name == "SETITEM"))][::-1]
        )
        target = self._stack[-1]
        if name.startswith("SET"):
            pairs = zip(items[::2], items[1::2], strict=False)
            if isinstance(target, dict):
                target.update((_key(key), value) for key, value in pairs)
            elif isinstance(target, Standin):
                target.items.extend(pairs)
        elif isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Standin):
            target.items.extend(items)

    def _stand_in(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "GLOBAL":
            stack.append(Standin(str(argument).replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(Standin(f"{module}.{attribute}"))
        elif name == "INST":
            stack.append(Standin(str(argument).replace(" ", "."), tuple(self._to_mark()), called=True))
        elif name == "OBJ":
            what, *rest = self._to_mark()
            stack.append(_wanted(what, tuple(rest)))
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], Standin):
                stack[-1].state = state
        else:  # NEWOBJ, NEWOBJ_EX, REDUCE
            if name == "NEWOBJ_EX":
                stack.pop()
            arguments = stack.pop()
            stack.append(_wanted(stack.pop(), arguments))


def _wanted(what: Any, arguments: Any) -> Standin:
    return Standin(what.name if isinstance(what, Standin) else "", arguments, called=True)


def _key(key: Any) -> Any:
    return key if isinstance(key, (str, int, float, bool, bytes)) or key is None else id(key)
