"""What happens to models and optimizers in the course of a script, and which weights backward reaches."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NamedTuple

from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.gradients import (
    ADAPTED,
    Gradients,
    Reach,
    held,
    is_module,
    is_schedule,
    made_optimizer,
    trained_in,
)
from stayfinite.readers.configs.course.picking import MODULES, parts_in
from stayfinite.readers.configs.course.terms import Conditions, Event, Term, all_from, constant, hides_weights, is_layer

_HARMLESS = frozenset({
    "print", "len", "sum", "isinstance", "type", "id", "str", "repr", "summary", "save", "dump", "state_dict", "next",
    "clip_grad_norm_", "clip_grad_value_", "hasattr", "getattr", "any", "all", "max", "min", "info", "watch", "compile",
    "tqdm", "named_parameters", "parameters", "modules", "children", "set_postfix", "format", "log", "write", "update",
    "get_last_lr", "count_parameters", "add_graph", "manual_seed", "vars", "DataLoader", "append", "unscale_",
    "unscale", "log_model", "load",
})  # fmt: skip
"""Calls that change nothing of what they get."""
_RESTORED = frozenset({
    "load_state_dict", "from_pretrained", "named_parameters", "children", "modules", "named_modules", "named_children",
    "register_forward_hook",
})  # fmt: skip
"""Methods of a model after which its layers may be anything."""
_MODELS_KEPT = frozenset({
    "print_trainable_parameters", "gradient_checkpointing_enable", "save_pretrained", "num_parameters", "generate",
    "get_input_embeddings", "get_output_embeddings", "enable_input_require_grads", "reset_classifier", "reset_head",
})  # fmt: skip
"""Methods of other code's models that freeze and unfreeze nothing."""
_BACKWARDS = frozenset({"grad", "vjp", "jacobian", "hessian", "backward"})


class Update(NamedTuple):
    """Something that happens to a model or an optimizer."""

    kind: str
    """`backward`, `step`, `zero`, `schedule`, `build`, `by hand`, `unknown`."""
    thing: Term | None
    node: ast.AST
    loops: tuple[int, ...]
    conditions: Conditions
    loss: Reach | None = None


class Updates:
    """The updates of a course, in order, those of each loop once."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.found: list[Update] = []
        self.held: dict[int, list[Term] | None] = {}
        self.excused: set[int] = set()
        """Loaded, changed by hand, or given to code that nobody sees."""
        self.frozen: set[int] = set()
        self.stepped_frozen: set[int] = set()
        """Optimizers that have stepped while all that they hold was frozen."""
        self.gradients = Gradients(course)
        self._places: dict[int, int] = {}
        self._seen: set[tuple[str, int]] = set()
        self._follow()

    def _follow(self) -> None:
        events = self.course.events
        asked = [each.term for each in events if each.kind == "backward"]
        asked += [each.term for each in events if each.kind == "augmented" and not each.learns]
        asked += [part for each in events if each.result.last == "backward" for part in each.result.parts[:1]]
        self.gradients.wanted.update(map(id, all_from(asked)))
        waiting = iter([*self.course.events, None])
        event = next(waiting)
        for place, term in enumerate(self.course.terms):
            while event is not None and event.at <= place:
                self._take(event)
                event = next(waiting)
            self._places[id(term)] = place
            self.gradients.add(term)
        while event is not None:
            self._take(event)
            event = next(waiting)

    def _take(self, event: Event) -> None:
        look = _KINDS.get(event.kind)
        if look is not None:
            look(self, event)

    def _tell(self, kind: str, thing: Term | None, event: Event, loss: Reach | None = None) -> None:
        loops = tuple(loop for loop, _ in event.passes)
        again = any(place and not isinstance(self.course.loops.get(loop), ast.comprehension)
                    for loop, place in event.passes)  # fmt: skip
        key = (kind, id(event.node))
        if not again or key not in self._seen:
            self._seen.add(key)
            self.found.append(Update(kind, thing, event.node, loops, event.conditions, loss))

    def leaves(self, optimizer: Term) -> set[int]:
        """Every layer that an optimizer holds."""
        return {id(part) for part in self._held_parts(optimizer)}

    def _held_parts(self, optimizer: Term) -> list[Term]:
        """The same: what a model had when the optimizer was made."""
        parts = [part for each in self.held.get(id(optimizer)) or () for part in self.parts(each)]
        return [each for each in parts if not self.is_later(each, optimizer)]

    def is_later(self, one: Term, other: Term) -> bool:
        """Whether a value was made after another."""
        places = self._places
        return places.get(id(one), 0) > places.get(id(other), len(self.course.terms))

    def parts(self, held_one: Term) -> list[Term]:
        """The layers of a model, or a tensor itself."""
        return trained_in(held_one) if held_one.op in MODULES else [held_one]

    def _backward(self, event: Event) -> None:
        self._tell("backward", None, event, self.gradients.of(event.term) if event.term.op != "unknown" else None)

    def _step(self, event: Event) -> None:
        owner, given = event.term, event.result.parts[1:]
        inside = next((each for each in given if id(each) in self.held), None)
        if id(owner) in self.held:
            self._stepped(owner)
            self._tell("step", owner, event)
        elif is_schedule(owner):
            self._tell("schedule", owner, event)
        else:
            words = ast.unparse(event.node.func).lower() if isinstance(event.node, ast.Call) else ""
            about_rates = "sched" in words or "lr" in words.split(".")
            if inside is not None:
                self._stepped(inside)
            self._tell("step" if inside is not None or not about_rates else "schedule", inside, event)

    def _stepped(self, optimizer: Term) -> None:
        trained = self._held_parts(optimizer)
        if trained and all(id(each) in self.frozen for each in trained):
            self.stepped_frozen.add(id(optimizer))
        else:
            self.stepped_frozen.discard(id(optimizer))

    def _called(self, event: Event) -> None:
        """A call of a library."""
        call, owner = event.result, event.term
        name = call.last
        if call.op == "made":
            if call.last in ADAPTED and call.parts:
                self._freeze(call.parts[0], now=True)
            if made_optimizer(call):
                whole = [each for each in (*call.parts, *call.keywords.values()) if is_module(each)]
                self.held[id(call)] = whole or held(call.given(0, "params"), self.gradients.asked, self.course.loose)
                self._tell("build", call, event)
        elif name in ("zero_grad", "clear_grad"):
            known = call.op == "method" and (id(owner) in self.held or owner.op == "instance" or is_layer(owner))
            self._tell("zero", owner if known else None, event)
        elif name in _BACKWARDS:
            loss = call.parts[0] if name == "backward" and call.parts else None
            self._tell("backward", None, event, self.gradients.of(loss) if loss is not None else None)
        elif call.op == "method" and owner.op in MODULES:
            self._of_thing(event, owner, name)
        elif name == "requires_grad_" and call.parts:
            off = constant(call.parts[1] if len(call.parts) > 1 else None) is False
            self._ask(owner, event, off=off)
            if not off:
                self.gradients.ask(call)

    def _of_thing(self, event: Event, owner: Term, name: str) -> None:
        """A method of a model or an optimizer."""
        call = event.result
        if id(owner) in self.held:
            if name == "add_param_group" or name.startswith("load"):
                self.held[id(owner)] = None
        elif name == "requires_grad_":
            off = len(call.parts) > 1 and constant(call.parts[1]) is False
            self._freeze(owner, now=off and not event.conditions)
        elif name in _RESTORED:
            again = name == "load_state_dict" and not event.passes and any(e.kind == "backward" for e in self.found)
            if not again:
                self._freeze(owner, now=False)

    def _freeze(self, model: Term, *, now: bool) -> None:
        for each in (model, *self.parts(model)):
            if id(each) in self._places:  # made before
                self.excused.add(id(each))
                (self.frozen.add if now else self.frozen.discard)(id(each))

    def _foreign(self, event: Event) -> None:
        """A call of code that nobody sees: it may do anything to what it gets."""
        call = event.result
        if call.last in ("zero_grad", "clear_grad", *_BACKWARDS):
            self._called(event)
            return
        if call.last in _HARMLESS or is_schedule(call):
            return
        if call.last in ADAPTED or made_optimizer(call):
            self._called(event)
            return
        self._tell("unknown", None, event)
        if call.op == "method" and hides_weights(event.term) and call.last not in _MODELS_KEPT:
            self._freeze(event.term, now=False)
        given = call.parts[1:] if call.op == "method" else call.parts
        for each in (*given, *call.keywords.values()):
            self._hand_over(each)

    def _hand_over(self, value: Term, depth: int = 0) -> None:
        if id(value) in self.held:
            self.excused.add(id(value))
            for each in self.held.get(id(value)) or ():
                self._hand_over(each)
            self.held[id(value)] = None
        elif value.op in MODULES:
            self.gradients.loose.add(id(value))
            self.excused.update((id(value), *(id(each) for each in self.parts(value))))
            for each in value.attributes.values() if depth < 4 else ():
                if id(each) in self.held:
                    self._hand_over(each)
        elif value.op == "method" and value.name in ("parameters", "named_parameters"):
            self._hand_over(value.parts[0])
        elif value.op in ("row", "dict") and depth < 4:
            for each in parts_in(value):
                self._hand_over(each, depth + 1)

    def _attribute(self, event: Event) -> None:
        """`value.name = ...`"""
        name = event.node.attr if isinstance(event.node, ast.Attribute) else ""
        if name == "requires_grad":
            self._ask(event.term, event, off=constant(event.result) is False)
        elif name == "grad" or (name == "data" and event.term.op not in MODULES):
            self._touch(event.term, event)

    def _ask(self, value: Term, event: Event, *, off: bool) -> None:
        """A gradient is asked for a tensor, or no longer asked for."""
        models = self._models(value)
        if models is None:
            if not off:
                self.gradients.ask(value)
            models = [value.parts[0]] if value.op == "attribute" and value.name in ("weight", "bias") else []
            if not off:
                self._freeze(_root(value), now=False)  # `model.get_classifier()` is a part of the model
        for each in models:
            self._freeze(each, now=off and value.op == "each" and not event.conditions)

    def _touch(self, value: Term, event: Event) -> None:
        """Note that weights are changed by hand."""
        models = self._models(value)
        if models is None and value.op == "attribute" and value.name in ("weight", "bias", "data", "grad"):
            self._touch(value.parts[0], event)
        elif models is not None:
            for each in models:
                self.excused.update((id(each), *(id(part) for part in self.parts(each))))
                self._tell("by hand", each, event)
        elif event.kind == "attribute":
            self._tell("by hand", None, event)

    def _models(self, value: Term) -> list[Term] | None:
        """Whose weights a value is: of `for p in model.parameters()`, a layer's, or a tensor that is trained."""
        if value.op == "part" and value.data == 1 and value.parts[0].op == "each":
            value = value.parts[0]
        if value.op == "each" and value.parts:
            over = value.parts[0]
            if over.op == "method" and over.name == "named_parameters" and over.parts[0].op in MODULES:
                return [over.parts[0]]
            return held(over, self.gradients.asked, self.course.loose)
        known = value.op in MODULES or id(value) in self.gradients.asked
        return [value] if known else None

    def _in_place(self, event: Event) -> None:
        """Parameters that are written to once the training has begun; before, they are initialized."""
        value, graded = event.term, False
        while value.op == "attribute" and value.name in ("data", "grad"):
            value, graded = value.parts[0], graded or value.name == "grad"
        begun = any(each.kind == "backward" for each in self.found)
        if begun and (graded or value.op in ("each", "part")):
            self._touch(event.term, event)

    def _augmented(self, event: Event) -> None:
        if not event.learns and self.gradients.is_leaf(event.term):
            self._tell("by hand", event.term, event)


def _root(value: Term) -> Term:
    """What a part was asked of."""
    while value.op in ("each", "method", "attribute", "index", "part", "applied") and value.parts:
        value = value.parts[0]
    return value


_KINDS: dict[str, Callable[[Updates, Event], None]] = {
    "backward": Updates._backward, "step": Updates._step, "called": Updates._called, "foreign": Updates._foreign,
    "attribute": Updates._attribute, "in place": Updates._in_place,
    "augmented": Updates._augmented, "load_state_dict": Updates._called,
}  # fmt: skip
