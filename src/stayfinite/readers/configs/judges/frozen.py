"""Weights that no step changes: frozen, or made after their optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from stayfinite.readers.configs.course.calling import held_by
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.gradients import ADAPTED, has_weights, is_module, made_optimizer, trained_in
from stayfinite.readers.configs.course.terms import hides_weights, is_layer
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.program import Program
from stayfinite.readers.configs.judges.stepping import KEPT_FIXED, is_excused, is_meant


def made_too_late(program: Program) -> Iterator[Fault]:
    """A part of a model that was made after the model's optimizer, and that no other optimizer holds."""
    held = {part for each in program.optimizers for part in program.leaves(each)}
    if any(program.holds(each) is None for each in program.optimizers):
        return
    reached = {part for _, loss in program.losses() for part in loss.sources}
    for optimizer in program.optimizers if program.all_traced("step") else ():
        models = [each for each in program.holds(optimizer) or () if program.of("step", optimizer)]
        parts = [part for each in models for part in program.parts(each)]
        parts += [each for each in reached if each.last in ADAPTED and any(one in models for one in held_by(each))]
        late = [each for each in parts if each in reached and id(each) not in held and has_weights(each)]
        late = [each for each in late if program.is_later(each, optimizer) and not is_meant(program, each)]
        if late:
            name, added = program.name(optimizer) or "the optimizer", min(late, key=lambda each: each.line)
            what = "the adapter" if added.last in ADAPTED else program.path(added)
            text = f"{what} is made after {name}, which never trains it"
            fix = "build the optimizer after the model is complete"
            yield Fault("params-not-in-optimizer", text, added.line, fix=fix)


def late_adapters(course: Course) -> Iterator[Fault]:
    """`Trainer(model=get_peft_model(base, ...), optimizers=(optimizer, ...))`, whose optimizer was made of the base."""
    made = {id(each): place for place, each in enumerate(course.terms)}
    if "add_param_group" in course.code:
        return
    for trainer in course.terms:
        pair = trainer.keywords.get("optimizers") if trainer.last.endswith("Trainer") else None
        model = trainer.given(0, "model") if pair is not None else None
        optimizer = pair.parts[0] if pair is not None and pair.op == "row" and pair.parts else None
        if model is None or optimizer is None or not (made_optimizer(optimizer) and model.last in ADAPTED):
            continue
        base, given = model.given(0, "model"), optimizer.given(0, "params")
        of_base = given is not None and given.op == "method" and given.name == "parameters" and given.parts[0] is base
        if base is not None and of_base and model.op == "made" and made.get(id(optimizer), 0) < made.get(id(model), 0):
            name = course.titles.get(id(optimizer)) or "the optimizer"
            text = f"the adapter is made after {name}, which never trains it"
            fix = "build the optimizer after the model is complete"
            yield Fault("params-not-in-optimizer", text, model.line, fix=fix)


def all_frozen(program: Program) -> Iterator[Fault]:
    """An optimizer all of whose weights are frozen."""
    for optimizer in program.optimizers if next(made_too_late(program), None) is None else ():
        if id(optimizer) in program.stepped_frozen and program.holds(optimizer) and not is_excused(program, optimizer):
            name = program.name(optimizer) or "the optimizer"
            yield Fault("params-frozen", f"every weight that {name} holds has requires_grad = False", optimizer.line)


def new_and_frozen(program: Program) -> Iterator[Fault]:
    """A new layer of a model that is loaded, frozen together with it: its weights stay random."""
    seen = {part for _, loss in program.losses() for part in loss.seen}
    for model in program.course.terms if program.of("step") else ():
        for name, layer in model.attributes.items() if hides_weights(model) else ():
            parts = [each for each in held_by(layer) if is_layer(each) and has_weights(each)]
            kept = KEPT_FIXED.search(f"{program.path(model)}.{name}") is not None
            if parts and not kept and all(each in seen and id(each) in program.frozen for each in parts):
                text = f"{program.path(model)}.{name} is new, and frozen with the rest: its weights stay random"
                yield Fault("params-frozen", text, layer.line, fix="freeze the model before its new layer is made")


def frozen_aliases(program: Program) -> Iterator[Fault]:
    """`self.target = self.online`, then frozen: no copy, so the online network is frozen, too."""
    for event in program.course.events if program.of("backward") else ():
        target = event.node
        if event.kind != "attribute" or not isinstance(target, ast.Attribute) or not is_module(event.result):
            continue
        others = [key for key, each in event.term.attributes.items() if each is event.result and key != target.attr]
        named = KEPT_FIXED.search(target.attr) and others and not KEPT_FIXED.search(str(others[0]))
        parts = [each for each in trained_in(event.result) if has_weights(each)]
        if named and event.sure and parts and all(id(each) in program.frozen for each in parts):
            text = f"{ast.unparse(target)} is self.{others[0]}, and no copy: freezing it freezes both"
            yield Fault("params-frozen", text, event.node.lineno, fix=f"use copy.deepcopy for {target.attr}")


def compared_only(nodes: Sequence[ast.AST]) -> Iterator[Fault]:
    """`p.requires_grad == True` on a line of its own."""
    for node in nodes:
        value = node.value if isinstance(node, ast.Expr) else None
        if (
            isinstance(value, ast.Compare)
            and isinstance(value.left, ast.Attribute)
            and isinstance(value.ops[0], ast.Eq)
        ):
            on = isinstance(value.comparators[0], ast.Constant) and value.comparators[0].value is True
            if on and value.left.attr == "requires_grad":
                text = f"{ast.unparse(value)} compares, and sets nothing: the weights stay frozen"
                yield Fault("params-frozen", text, value.lineno, fix=f"{ast.unparse(value.left)} = True")
