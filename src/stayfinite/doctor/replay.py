"""Re-run the statements between batch and loss from saved frames; accepted only if the loss is bitwise equal."""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import io
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.changes import replaced
from stayfinite.autopsy.steps.step import untouched
from stayfinite.doctor.frames import is_users
from stayfinite.doctor.moments import Backward, Held, share_nodes
from stayfinite.doctor.slicing import Block, blocks_round, compiled, loops_in, names_loaded, names_stored
from stayfinite.state.rng import capture_rng, restore_rng

MOST_PLACES = 8
"""Starting points to try before giving up."""


MOST_COPIED = 100_000
"""Largest container to copy before statements may append to it."""


MOST_ELEMENTS = 1 << 25
"""Largest tensor to copy before statements may write to it."""


class LossReached(BaseException):
    """Backward was reached at the recorded line. A BaseException, since programs catch Exception."""

    def __init__(self, loss: Tensor) -> None:
        self.loss = loss


class CannotReplay(BaseException):
    """The statements would change something that cannot be restored."""


class _Returned(BaseException):
    """The function returned before backward."""


@dataclass
class Playing:
    """State of the running replay, read by the hooks."""

    place: tuple[str, int] | None = None
    """Where backward must be called."""
    drawn: Mapping[int, Any] | None = None
    """Last batch by ``id`` of the loader's iterator."""

    @property
    def on(self) -> bool:
        """Whether a replay is running; nothing is recorded then."""
        return self.place is not None


playing = Playing()


@dataclass(slots=True)
class Replay:
    """A step that can be run again."""

    model: nn.Module
    batch: dict[str, Any]
    """The data tensors, by variable name."""
    rng: dict[str, Any]
    place: tuple[str, int]
    drawn: Mapping[int, Any]
    _names: dict[str, Any]
    _codes: list[CodeType]
    statements: list[ast.stmt]
    """The statements that are run."""

    def forward(self, batch: Mapping[str, Any]) -> Tensor:
        names = _fresh(self._names) | dict(batch)
        with replaying(self.place, self.drawn):
            return _run(self._codes, names)


@contextmanager
def replaying(place: tuple[str, int], drawn: Mapping[int, Any]) -> Iterator[None]:
    """Stop at backward, suppress output and freeze iterators within this context."""
    following, out = builtins.next, io.StringIO()

    def again(iterator: Any, *default: Any) -> Any:
        if playing.drawn is not None and id(iterator) in playing.drawn:
            return playing.drawn[id(iterator)]
        if hasattr(iterator, "gi_frame") and is_users(sys._getframe(1).f_code.co_filename):
            raise CannotReplay("a generator would advance")
        return following(iterator, *default)

    playing.drawn = drawn
    with redirect_stdout(out), redirect_stderr(out), replaced(builtins, next=again), replaced(playing, place=place):
        yield


def find_replay(
    backward: Backward,
    model: nn.Module,
) -> Replay | None:
    """Find statements that reproduce the loss bitwise; None if none do.

    Arguments:
        backward: the call that ended them.
        model: all parameters and buffers involved.
    """
    tried = 0
    for index, held in enumerate(backward.at.frames):
        innermost = (backward.at.frames[0].code.co_filename, backward.at.frames[0].line)
        for block, first, names, rng in _starts(backward, held):
            tried += 1
            if tried > MOST_PLACES:
                return None
            made = _attempt(block, first, held, names, rng, model, innermost, backward.drawn, backward)
            if made is not None:
                return made
        if index > 5:
            break
    return None


def _starts(backward: Backward, held: Held) -> Iterator[tuple[Block, int, dict[str, Any], dict[str, Any]]]:
    """Candidate starts: block, index of the first statement, variables, generator states."""
    began, came = backward.began, backward.batch_came
    last = came if came is not None else began
    rng = last.rng if last is not None and last.rng is not None else None
    for block in blocks_round(held.code, held.line):
        entry = None if began is None else began.of(held.frame_id, held.code)
        arguments = held.code.co_varnames[: held.code.co_argcount + held.code.co_kwonlyargcount]
        given = {name: held.names[name] for name in arguments if name in held.names}
        hidden = {name: held.names[name] for name in held.code.co_freevars if name in held.names}
        if block.loop is None:
            # A function entered before the step began has done more than this step: do not re-run it.
            if rng is not None and entry is None and began is not None and began.frames:
                yield block, 0, hidden | given, rng
            return
        names = dict(entry.names) if entry is not None else dict(held.names)
        end = block.holding(held.line)
        if end is None:
            continue
        stepped = None if entry is None or entry.line == held.line else block.holding(entry.line)
        if stepped is not None and entry is not None and stepped < end and began is not None and began.rng is not None:
            yield block, stepped + 1, names, began.rng
        if rng is None:
            continue
        # A hand-written step may have rebound the weights to new tensors: then use the values at backward, and for
        # loop variables those of the loop.
        for known in (names, names | held.names) if entry is not None else (names,):
            if isinstance(block.loop, ast.For):
                _bind(block.loop.target, block.loop.iter, known, held, backward.batch_of)
            yield block, 0, known, rng


def _bind(
    target: ast.expr, source: ast.expr, names: dict[str, Any], held: Held, batches: Callable[[Any], tuple[bool, Any]]
) -> None:
    """Set loop variables: from the loader's last batch if known, else from the frame."""
    for name in names_stored([target]):
        if name in held.names:
            names[name] = held.names[name]
    if isinstance(source, ast.Call) and source.args:
        called = source.func.attr if isinstance(source.func, ast.Attribute) else getattr(source.func, "id", "")
        if called == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            _bind(target.elts[1], source.args[0], names, held, batches)
            return
        if called == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(source.args):
            for each, part in zip(target.elts, source.args, strict=True):
                _bind(each, part, names, held, batches)
            return
        _bind(target, source.args[0], names, held, batches)
        return
    loader = _value(source, {**held.everywhere, **held.names})
    known, batch = batches(loader)
    if known:
        with contextlib.suppress(Exception):
            _assign(target, batch, names)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, names)
        return None if owner is None else getattr(owner, "__dict__", {}).get(node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner = _value(node.value, names)
        return owner.get(node.slice.value) if isinstance(owner, dict) else None
    return None


def _assign(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List):
        values = list(value)
        if len(values) == len(target.elts) and not any(isinstance(each, ast.Starred) for each in target.elts):
            for each, part in zip(target.elts, values, strict=True):
                _assign(each, part, names)


def _attempt(
    block: Block,
    first: int,
    held: Held,
    names: dict[str, Any],
    rng: dict[str, Any],
    model: nn.Module,
    place: tuple[str, int],
    drawn: Mapping[int, Any],
    backward: Backward,
) -> Replay | None:
    end = block.holding(held.line)
    if end is None or end < first:
        return None
    own = held.code.co_varnames[0] if held.code.co_argcount else ""
    statements = block.statements[first : end + 1]
    try:
        codes = [compiled(each, block.filename, own) for each in statements]
    except (SyntaxError, ValueError):
        return None
    whole = {**held.everywhere, **names, "__stayfinite_returned__": _Returned}
    used = names_loaded(statements)
    space = _fresh(_own_data(whole, used))
    try:
        with untouched(model), torch.enable_grad():
            restore_rng(rng)
            with replaying(place, drawn):
                at, before, state, loss = _run_until_model(codes, space)
    except (Exception, CannotReplay, _Returned):
        return None
    if loss is None or loss.data_ptr() == backward.loss.data_ptr() or not same_bits(loss, backward.loss):
        return None
    if share_nodes(loss.grad_fn, backward.graph):
        return None  # backward here would free the program's own graph
    for start, given, generators in ((at, before, state), (0, _own_data(whole, used), rng)):
        rest = statements[start:]
        used = names_loaded(rest)
        looped = {name for each in rest for loop in loops_in(each) for name in names_stored([loop.target])}
        batch = {
            name: value
            for name, value in given.items()
            if name in used and name not in looped and _is_data(value, model)
        }
        replay = Replay(
            model=model, batch=batch, rng=generators, place=place, drawn=drawn, _names=given, _codes=codes[start:],
            statements=rest,
        )  # fmt: skip
        if _again(replay, backward.loss):
            return replay
    return None


def _again(replay: Replay, loss: Tensor) -> bool:
    """Whether the reduced replay reproduces the loss, too."""
    try:
        with untouched(replay.model), torch.enable_grad():
            restore_rng(replay.rng)
            return same_bits(replay.forward(replay.batch), loss)
    except (Exception, CannotReplay, _Returned):
        return False


def _run_until_model(
    codes: list[CodeType], space: dict[str, Any]
) -> tuple[int, dict[str, Any], dict[str, Any], Tensor | None]:
    """Run statements up to the loss. Returns the index of the first that uses a model, the variables and generators
    before it, and the loss.
    """
    met: list[bool] = []
    found: tuple[int, dict[str, Any], dict[str, Any]] | None = None
    with torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: met.append(True)):
        for index, code in enumerate(codes):
            before, state = (_fresh(space), capture_rng()) if found is None else ({}, {})
            try:
                exec(code, space)
            except LossReached as reached:
                at, names, generators = found or (index, before, state)
                return at, names, generators, reached.loss
            if found is None and (met or _learns(space, before)):
                found = index, before, state
    return 0, {}, {}, None


def _fresh(names: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the variables, with containers copied shallowly."""
    return {
        name: copy.copy(value) if type(value) in (list, dict, set, deque) and len(value) <= MOST_COPIED else value
        for name, value in names.items()
    }


def _own_data(names: Mapping[str, Any], used: set[str]) -> dict[str, Any]:
    """Copy the variables, with data tensors cloned so that the program's own are not written to."""
    return {
        name: value.clone()
        if name in used and type(value) is Tensor and not value.requires_grad and value.numel() <= MOST_ELEMENTS
        else value
        for name, value in names.items()
    }


def _learns(space: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return any(
        isinstance(value, Tensor) and value.requires_grad and not value.is_leaf
        for name, value in space.items()
        if value is not before.get(name)
    )


def _run(codes: list[CodeType], names: dict[str, Any]) -> Tensor:
    try:
        for code in codes:
            exec(code, names)
    except LossReached as reached:
        return reached.loss
    except (CannotReplay, _Returned) as error:
        raise RuntimeError(f"the statements do not reproduce the loss: {type(error).__name__}") from None
    raise RuntimeError("the statements do not reproduce the loss")


def is_data(value: Any) -> bool:
    """Whether a value is a tensor of data, that is, without gradients."""
    return isinstance(value, Tensor) and value.dim() > 0 and not value.requires_grad and value.grad_fn is None


def _is_data(value: Any, model: nn.Module, depth: int = 0) -> bool:
    """Whether a value contains data."""
    if isinstance(value, Tensor):
        return is_data(value)
    if depth > 2 or isinstance(value, nn.Module | str | bytes):
        return False
    if type(value) in (list, tuple) and 0 < len(value) <= 64:
        return any(_is_data(each, model, depth + 1) for each in value)
    if isinstance(value, Mapping) and 0 < len(value) <= 64:
        return any(_is_data(each, model, depth + 1) for each in value.values())
    return False


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two losses are bitwise equal; NaN equals NaN."""
    one, other = one.detach().reshape(-1), other.detach().reshape(-1)
    if one.dtype is not other.dtype or one.shape != other.shape:
        return False
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
