"""Watches one training step operator by operator, forward and backward, and writes down where values turn bad.

A dispatch mode sees every operator below autograd. Each output is looked at (its extremes); each tensor is known by
the storage it lives in, so that views, in-place writes and tensors that autograd had put away lead to the operator that
wrote them. A backward operator is paired with its forward one by autograd's sequence number, which both share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stayfinite.autopsy.events import CloseLook, Event, Health
from stayfinite.autopsy.frames import places
from stayfinite.autopsy.looking import can_be_bad, extremes, health_now, health_of, look_closely, values_at

WINDOW = 16
"""Operators on an accelerator that are read back together."""

MOST_CLOSE_LOOKS = 64

_VIEWS = frozenset({
    "view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "alias",
    "detach", "split", "split_with_sizes", "unbind", "as_strided", "diagonal", "unfold", "chunk", "reshape",
    "_reshape_alias", "lift_fresh", "view_as_real", "view_as_complex", "movedim", "narrow",
})  # fmt: skip


class Tracer(TorchDispatchMode):
    """A context in which one step is run; ``events`` holds what happened.

    Arguments:
        model: its modules' paths and its parameters' names are used.
        named: further tensors with names, such as the items of the batch.
    """

    def __init__(self, model: nn.Module, named: Mapping[str, Tensor] | None = None) -> None:
        TorchDispatchMode.__init__(self)
        self.events: list[Event] = []
        self.leaves: dict[int, str] = {}
        """Names of leaves by their negative number."""
        self.leaf_health: dict[int, Health] = {}
        self._model = model
        self._writer: dict[int, int] = {}
        """Storage -> event that wrote it last, or leaf."""
        self._health: dict[int, Health] = {}
        """Storage -> what was last seen in it."""
        self._names: dict[int, str] = {}
        self._paths = {module: path for path, module in model.named_modules()}
        self._modules: list[str] = []
        self._forward_of: dict[int, int | None] = {}
        """Sequence number -> the first forward event that had it; None for a view."""
        self._kept: dict[int, Tensor] = {}
        self._looks = 0
        self._open = True
        self._waiting: list[tuple[Event, list[Tensor], list[Tensor], list[Tensor]]] = []
        self._stack = ExitStack()
        for name, tensor in [*model.named_parameters(), *model.named_buffers(), *(named or {}).items()]:
            self._names.setdefault(_storage(tensor), name)

    def __enter__(self) -> Self:
        # For all modules, not the model's alone: a teacher or an average of the weights may take part in the loss.
        for hook in (
            nn.modules.module.register_module_forward_pre_hook(self._enter_module),
            nn.modules.module.register_module_forward_hook(self._leave_module, always_call=True),
        ):
            self._stack.callback(hook.remove)
        TorchDispatchMode.__enter__(self)
        return self

    def close(self) -> None:
        """From now on nothing is written down; what runs yet is not part of the step."""
        self._read_back()
        self._open = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        TorchDispatchMode.__exit__(self, kind, error, trace)
        self._stack.close()
        self._read_back()

    def _enter_module(self, module: nn.Module, _inputs: Any) -> None:
        path = self._paths.get(module)
        if path is None:
            if not any(True for _ in module.parameters()) and not any(True for _ in module.buffers()):
                # A loss function that was made on the spot belongs to whoever called it.
                self._modules.append(self._modules[-1] if self._modules else "")
                return
            # A stranger: its parts are known by its type from now on.
            kind = type(module).__name__
            for name, part in module.named_modules(prefix=kind):
                self._paths.setdefault(part, name)
            for name, tensor in [*module.named_parameters(kind), *module.named_buffers(kind)]:
                self._names.setdefault(_storage(tensor), name)
            path = kind
        self._modules.append(path)

    def _leave_module(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        if self._modules:
            self._modules.pop()

    def writer_of(self, tensor: Tensor) -> int | None:
        """The event that wrote a tensor last."""
        return self._writer.get(_storage(tensor))

    def tensor_of(self, leaf: int) -> Tensor | None:
        """A leaf by its number."""
        return self._kept.get(leaf)

    def health(self, tensor: Tensor) -> Health:
        """What was last seen in a tensor's storage."""
        return self._health.get(_storage(tensor), Health.FINITE)

    def forward_of(self, event: Event) -> Event | None:
        """The forward operator whose derivative a backward one computes."""
        number = self._forward_of.get(event.sequence)
        return None if number is None else self.events[number]

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and write down what became of it."""
        kwargs = kwargs or {}
        if not self._open:
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::") if func.namespace == "aten" else func._schema.name
        tensors: list[Tensor] = []
        constants: list[float] = []
        _sort_out(args, tensors, constants)
        if kwargs:
            _sort_out(kwargs.values(), tensors, constants)
        node = torch._C._current_autograd_node()
        # Recomputing under gradient checkpointing runs forward operators inside of a backward pass.
        recomputing = node is not None and bool(self._modules)
        before = [self._known(tensor) for tensor in tensors]
        result = func(*args, **kwargs)
        outputs: list[Tensor] = []
        _sort_out((result,), outputs, [])
        backward = node is not None and not recomputing
        sequence = node._sequence_nr() if backward else torch._C._autograd._get_sequence_nr() - 1
        if name in _VIEWS or not outputs:
            if not backward:
                self._forward_of.setdefault(sequence, None)
            return result
        near, user = places(backward=backward)
        event = Event(
            number=len(self.events),
            operator=f"aten.{name}" if func.namespace == "aten" else name.replace("::", "."),
            phase="backward" if backward else "forward",
            module=self._modules[-1] if self._modules else "",
            dtype=str(outputs[0].dtype).removeprefix("torch."),
            place=near,
            user_place=user,
            sequence=sequence,
            node=node.name() if backward else "",
            inputs=tuple(writer for writer, _ in before),
            before=tuple(health for _, health in before),
            after=Health.FINITE,
            constants=tuple(constants),
            overload=func._overloadname,
            called_back=backward and near is not None,
        )  # fmt: skip
        if backward:
            self._inherit_place(event)
        else:
            # Comparisons and the like have no node of their own, and find the number of the operator before them.
            self._forward_of.setdefault(sequence, event.number)
        self.events.append(event)
        for output in outputs:
            self._note_writer(event, output)
        if outputs[0].device.type == "cpu":
            self._take_down(event, tensors, outputs, [health_now(t) for t in outputs if can_be_bad(t)])
            return result
        self._waiting.append((event, tensors, outputs, [extremes(t) for t in outputs if can_be_bad(t)]))
        if len(self._waiting) >= WINDOW:
            self._read_back()
        return result

    def _note_writer(self, event: Event, output: Tensor) -> None:
        """From now on the tensor is this event's; where it is only a part of its storage, the rest stays another's."""
        key = _storage(output)
        earlier = self._writer.get(key)
        if earlier is not None and earlier != event.number and _is_part(output):
            event.over += (earlier,)
            event.inputs += (earlier,)
            event.before += (self._health.get(key, Health.FINITE),)
        self._writer[key] = event.number

    def _inherit_place(self, event: Event) -> None:
        forward = self.forward_of(event)
        if forward is not None:
            event.module = forward.module
            if event.place is None:
                event.place, event.user_place = forward.place, forward.user_place

    def _known(self, tensor: Tensor) -> tuple[int, Health]:
        """Who wrote a tensor, and what is in it; a tensor that nobody wrote is a leaf, and is looked at once."""
        key = _storage(tensor)
        writer = self._writer.get(key)
        if writer is None:
            writer = -1 - len(self.leaves)
            self._writer[key] = writer
            self.leaves[writer] = self._names.get(key, "")
            # Kept alive, so that no later tensor can be given its address.
            self._kept[writer] = tensor
            health = Health.FINITE
            if can_be_bad(tensor):
                health = health_now(tensor)
            self._health[key] = self.leaf_health[writer] = health
        return writer, self._health.get(key, Health.FINITE)

    def _read_back(self) -> None:
        waiting, self._waiting = self._waiting, []
        pairs = [pair for _, _, _, found in waiting for pair in found]
        if not pairs:
            return
        numbers = iter(torch.stack([pair.double() for pair in pairs]).tolist())
        for event, inputs, outputs, found in waiting:
            # The health of what was written within the same window was not known yet.
            event.before = tuple(
                self.events[n].after if n >= 0 else self.leaf_health.get(n, Health.FINITE) for n in event.inputs
            )
            self._take_down(event, inputs, outputs, [health_of(*next(numbers)) for _ in found])

    def _take_down(self, event: Event, inputs: list[Tensor], outputs: list[Tensor], seen: list[Health]) -> None:
        """What an operator's outputs came to has become known."""
        worst = max(event.before, default=Health.FINITE)
        event.after = max(seen, default=Health.FINITE)
        if event.over:
            rest = (health for n, health in zip(event.inputs, event.before, strict=True) if n in event.over)
            event.after = max(event.after, *rest)
        for output in outputs:
            if can_be_bad(output):
                self._health[_storage(output)] = event.after
        if event.after > worst and self._looks < MOST_CLOSE_LOOKS:
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


def _storage(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without one storage
        return id(tensor)


def _sort_out(items: Iterable[Any], tensors: list[Tensor], numbers: list[float]) -> None:
    """Tensors and numbers among an operator's arguments, in lists as well."""
    for item in items:
        if isinstance(item, Tensor):
            tensors.append(item)
        elif isinstance(item, int | float):
            numbers.append(float(item))
        elif isinstance(item, list | tuple):
            _sort_out(item, tensors, numbers)


def _is_part(tensor: Tensor) -> bool:
    try:
        return tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return False


def is_constant_infinity(event: Event) -> bool:
    """Whether an operator was told to write an infinity, as masks are."""
    return any(math.isinf(value) for value in event.constants)
