"""Trace one training step operator by operator, forward and backward, and record where values turn bad.

A dispatch mode sees every operator below autograd and checks each output. Tensors are identified by their storage, so
views, in-place writes and tensors saved by autograd lead to the operator that wrote them. A backward operator is paired
with its forward operator by autograd's sequence number.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from stayfinite.autopsy.tracing.events import CloseLook, Event, Health
from stayfinite.autopsy.tracing.frames import NOWHERE, Lines, Places
from stayfinite.autopsy.tracing.looking import (
    NAMES,
    PLAIN,
    Kind,
    can_be_bad,
    finite_together,
    health_now,
    is_part,
    kind_of,
    look_closely,
    sort_out,
    storage_of,
    surely_finite,
    unwrapped,
    values_at,
    worst_in,
)


@contextmanager
def every_module_heard(enter: Callable[..., Any], leave: Callable[..., Any]) -> Iterator[None]:
    """Call ``enter`` and ``leave`` as torch hooks before and after each module, also one that fails.

    For all modules, not only the model's: a teacher or averaged weights may be part of the loss.
    """
    with ExitStack() as hung:
        for hook in (
            nn.modules.module.register_module_forward_pre_hook(enter),
            nn.modules.module.register_module_forward_hook(leave, always_call=True),
        ):
            hung.callback(hook.remove)
        yield


WINDOW = 16
"""Operators on an accelerator that are checked with one sync."""

MOST_CLOSE_LOOKS = 64


class _Running(NamedTuple):
    """A module being called."""

    path: str
    frame: int
    """Id of the calling frame; everything inside the module has it above."""
    places: Places
    """Source lines of the call."""


_OUTSIDE = _Running("", 0, NOWHERE)
FINE = Health.FINITE

_current_node = torch._C._current_autograd_node
_next_sequence = torch._C._autograd._get_sequence_nr


class _Waiting(NamedTuple):
    """An operator whose outputs were not checked yet."""

    event: Event
    inputs: list[Tensor]
    outputs: list[Tensor]


class Tracer(TorchDispatchMode):
    """A context that runs one step; ``events`` has what happened.

    Arguments:
        model: provides module paths and parameter names.
        named: further named tensors, such as batch items.
    """

    def __init__(self, model: nn.Module, named: Mapping[str, Tensor] | None = None) -> None:
        TorchDispatchMode.__init__(self)
        self.events: list[Event] = []
        self.leaves: dict[int, str] = {}
        """Names of leaves by negative number."""
        self._model = model
        self._writer: dict[int, int] = {}
        """Storage -> event that wrote it last, or leaf."""
        self._bad: dict[int, Health] = {}
        """Non-finite events and leaves."""
        self._kinds: dict[int, Kind] = {}
        self._lines = Lines()
        self._names: dict[int, str] = {}
        self._paths = {module: path for path, module in model.named_modules()}
        self._modules: list[_Running] = []
        self._forward_of: dict[int, int | None] = {}
        """Sequence number -> first forward event with it; None for a view."""
        self._kept: dict[int, Tensor] = {}
        self._looks = 0
        self._open = True
        self._waiting: list[_Waiting] = []
        self._stack = ExitStack()
        for name, tensor in [*model.named_parameters(), *model.named_buffers(), *(named or {}).items()]:
            self._names.setdefault(storage_of(tensor), name)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The step runs eagerly; keeping the compiler away from a mode costs as much as the mode.
        return False

    def __enter__(self) -> Self:
        self._stack.enter_context(every_module_heard(self._enter_module, self._leave_module))
        TorchDispatchMode.__enter__(self)
        return self

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Context for work that is not part of the step; everything before it is checked first."""
        self._read_back()
        with torch._C._DisableTorchDispatch():
            yield

    def close(self) -> None:
        """Stop recording."""
        self._read_back()
        self._open = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        TorchDispatchMode.__exit__(self, kind, error, trace)
        self._stack.close()
        self._read_back()

    def _enter_module(self, module: nn.Module, _inputs: Any) -> None:
        if self not in _get_current_dispatch_mode_stack():
            return  # another thread trains another model
        path = self._paths.get(module)
        around = self._modules[-1] if self._modules else _OUTSIDE
        if path is None and not any(True for _ in module.parameters()) and not any(True for _ in module.buffers()):
            # A loss function created on the spot belongs to its caller.
            path = around.path
        elif path is None:
            # An unknown module: name its parts by its type.
            path = type(module).__name__
            for name, part in module.named_modules(prefix=path):
                self._paths.setdefault(part, name)
            for name, tensor in [*module.named_parameters(path), *module.named_buffers(path)]:
                self._names.setdefault(storage_of(tensor), name)
        caller = sys._getframe(1)
        found = self._lines.above(caller, until=around.frame, then=around.places)
        self._modules.append(_Running(path, id(caller), found))

    def _leave_module(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        if self._modules and self in _get_current_dispatch_mode_stack():
            self._modules.pop()

    def writer_of(self, tensor: Tensor) -> int | None:
        """The event that last wrote a tensor."""
        return self._writer.get(storage_of(tensor))

    def tensor_of(self, leaf: int) -> Tensor | None:
        return self._kept.get(leaf)

    def forward_of(self, event: Event) -> Event | None:
        """Forward operator whose derivative a backward operator computes."""
        number = self._forward_of.get(event.sequence)
        return None if number is None else self.events[number]

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and record it."""
        if not self._open:
            return func(*args, **kwargs) if kwargs else func(*args)
        kind = self._kinds.get(id(func))
        if kind is None:
            kind = self._kinds[id(func)] = kind_of(func)
        node = _current_node()
        # Recomputation in gradient checkpointing runs forward operators inside backward.
        backward = node is not None and not self._modules
        if kind.is_view:
            if args and isinstance(args[0], Tensor):
                self._writer_of(args[0])
            result = func(*args, **kwargs) if kwargs else func(*args)
            if not backward:
                self._forward_of.setdefault(_next_sequence() - 1, None)
            return result
        tensors: list[Tensor] = []
        constants: list[float] = []
        sort_out(args, tensors, constants)
        if kwargs:
            sort_out(kwargs.values(), tensors, constants)
        inputs = tuple([self._writer_of(tensor) for tensor in tensors])
        if kind.writes:
            self._read_back()  # later it would be too late to check pending outputs
        result = func(*args, **kwargs) if kwargs else func(*args)
        sequence = node._sequence_nr() if backward else _next_sequence() - 1
        outputs: list[Tensor] = []
        if type(result) in PLAIN:
            outputs.append(result)
        else:
            sort_out((result,), outputs, [])
        if outputs:
            self._take_down(kind, node if backward else None, sequence, inputs, tensors, outputs, constants)
        elif not backward:
            self._forward_of.setdefault(sequence, None)
        return result

    def _take_down(
        self, kind: Kind, node: Any, sequence: int, inputs: tuple[int, ...], tensors: list[Tensor],
        outputs: list[Tensor], constants: list[float],
    ) -> None:  # fmt: skip
        """Record an executed operator; ``node`` is set in backward."""
        around = self._modules[-1] if self._modules else _OUTSIDE
        backward = node is not None
        # On an accelerator autograd has its own thread, without a frame above the mode's.
        near, user = self._lines.above(
            sys._getframe(1).f_back, backward=backward, until=0 if backward else around.frame, then=around.places
        )
        number = len(self.events)
        event = Event(
            number, kind.name, "backward" if backward else "forward", around.path, NAMES[outputs[0].dtype], near, user,
            sequence, node.name() if backward else "", inputs, (), Health.FINITE, tuple(constants), (), kind.overload,
            backward and near is not None,
        )  # fmt: skip
        if backward:
            self._inherit_place(event)
        else:
            # Comparisons and similar have no node, and get the number of the operator before them.
            self._forward_of.setdefault(sequence, number)
        self.events.append(event)
        for output in outputs:
            key = storage_of(unwrapped(output))
            earlier = self._writer.get(key)
            if earlier is not None and earlier in inputs and is_part(output):
                # Written in place; the rest of the storage belongs to another event.
                event.over += (earlier,)
                event.inputs += (earlier,)
            self._writer[key] = number
        if outputs[0].is_cpu:
            suspects = [t for t in outputs if can_be_bad(t) and not surely_finite(t)]
            if suspects or self._bad:
                self._judge(event, tensors, outputs, max(map(worst_in, suspects), default=FINE))
            else:
                event.before = (FINE,) * len(event.inputs)
            return
        self._waiting.append(_Waiting(event, tensors, outputs))
        if len(self._waiting) >= WINDOW:
            self._read_back()

    def _inherit_place(self, event: Event) -> None:
        forward = self.forward_of(event)
        if forward is not None:
            event.module = forward.module
            if event.place is None:
                event.place, event.user_place = forward.place, forward.user_place

    def _writer_of(self, tensor: Tensor) -> int:
        """The event that wrote a tensor; a tensor without one is a leaf, and is checked once."""
        tensor = unwrapped(tensor)
        key = storage_of(tensor)
        writer = self._writer.get(key)
        if writer is None:
            writer = -1 - len(self.leaves)
            self._writer[key] = writer
            self.leaves[writer] = self._names.get(key, "")
            # Kept alive, so no later tensor gets its address.
            self._kept[writer] = tensor
            if can_be_bad(tensor) and (health := health_now(tensor)) is not Health.FINITE:
                self._bad[writer] = health
        return writer

    def _read_back(self) -> None:
        """Check all pending outputs together."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        looked_at = [[t for t in each.outputs if can_be_bad(t)] for each in waiting]
        finite = iter(finite_together([t for tensors in looked_at for t in tensors]))
        for each, tensors in zip(waiting, looked_at, strict=True):
            worst = max([FINE if next(finite) else worst_in(t) for t in tensors], default=FINE)
            self._judge(each.event, each.inputs, each.outputs, worst)

    def _judge(self, event: Event, inputs: list[Tensor], outputs: list[Tensor], after: Health) -> None:
        """Record the health of an operator's inputs and outputs."""
        event.before = tuple([self._bad.get(number, FINE) for number in event.inputs])
        event.after = max([after, *(self._bad.get(number, FINE) for number in event.over)])
        if event.after is not Health.FINITE:
            self._bad[event.number] = event.after
        if event.after > max(event.before, default=FINE) and self._looks < MOST_CLOSE_LOOKS:
            self._looks += 1
            event.close_look = self._close_look(event, inputs, outputs)

    def _close_look(self, event: Event, inputs: list[Tensor], outputs: list[Tensor]) -> CloseLook:
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            looks = [look_closely(t, self.leaves.get(n, "")) for t, n in zip(inputs, event.inputs, strict=False)]
            worst = next((t for t in outputs if can_be_bad(t) and not bool(t.isfinite().all())), outputs[0])
            output = look_closely(worst)
            for look, tensor in zip(looks, inputs, strict=True):
                look.at_bad = values_at(tensor, output.shape, output.first_bad)
            return CloseLook(looks, output)


def is_constant_infinity(event: Event) -> bool:
    """Whether an operator writes an infinity on purpose, as masks do."""
    return any(math.isinf(value) for value in event.constants)
