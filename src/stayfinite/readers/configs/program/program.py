"""Evaluate a whole script, including functions that nothing calls."""

from __future__ import annotations

import ast
from pathlib import PurePath

from stayfinite.readers.configs.program.calls import call
from stayfinite.readers.configs.program.classes import instantiate
from stayfinite.readers.configs.program.expressions import evaluate
from stayfinite.readers.configs.program.functions import call_function
from stayfinite.readers.configs.program.modules import Modules
from stayfinite.readers.configs.program.state import MOST_STEPS, Frame, Run, Scope
from stayfinite.readers.configs.program.statements import execute
from stayfinite.readers.configs.program.surroundings import Surroundings
from stayfinite.readers.configs.program.telling import Telling
from stayfinite.readers.configs.program.values import Class, Function, Origin, Value
from stayfinite.readers.configs.script_arguments import argument_of, field_defaults
from stayfinite.readers.configs.script_settings import ScriptSettings

_MOST_ROUNDS = 4  # nesting of uncalled functions
_CALLED_BY_FRAMEWORKS = frozenset(
    {
        "configure_optimizers", "training_step", "create_optimizer", "create_scheduler", "compute_loss", "train", "fit",
        "create_optimizer_and_scheduler", "train_dataloader", "setup", "optimizer_step", "run", "step",
    }
)  # fmt: skip
"""Methods of imported classes that say how the script trains; the others only define the model."""
_ALLOWANCE = 2_000  # steps guaranteed to each of them, so that early ones cannot use up the budget


def follow(
    tree: ast.Module, text: str, found: ScriptSettings, surroundings: Surroundings, *, every: bool = False, alone: bool
) -> None:
    """Add the settings of a script to ``found``; ``every`` argument of all calls, ``alone`` without other files."""
    telling = Telling(found, every=every)
    run = Run(surroundings, telling, Modules(), evaluate, execute, call, _call_assumed)
    folder = None if alone else str(PurePath(found.source).parent)
    scope = Scope(Origin(found.source, text.split("\n")), folder=folder, is_main=True)
    run.frames.append(Frame(scope))
    _declare(run, tree, scope)
    try:
        execute(run, tree.body)
        _follow_the_uncalled(run)
    except RecursionError:  # absurdly deep nesting: keep what was read so far
        pass
    del run.frames[1:]
    telling.rest(run)


def _call_assumed(run: Run, value: Value, node: ast.expr) -> Value:
    if isinstance(value.data, Class):
        return instantiate(run, value, [], {}, node, assumed=True)
    if isinstance(value.data, Function):
        return call_function(run, value.data, [], {}, node, assumed=True)
    return run.unknown(node)


def _declare(run: Run, tree: ast.Module, scope: Scope) -> None:
    """Collect arguments and fields by name, for code reached in unsupported ways."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for name, value in field_defaults(node):
                run.declared.setdefault(name, []).append((value, scope))
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            argument = argument_of(node, last)
            if argument is not None:
                run.declared.setdefault(argument.attribute, []).append((argument.default, scope))


def _follow_the_uncalled(run: Run) -> None:
    """Follow functions that only a framework calls, or nothing; parameters are defaults or unknown."""
    for _ in range(_MOST_ROUNDS):
        waiting = [each for each in run.functions if _waits(run, each)]
        owners = [each for each in run.classes if each.made or each.scope.module.is_main]
        methods = [
            (owner, each.data)
            for owner in owners
            for each in list(owner.names.values())
            if isinstance(each.data, Function) and each.data.owner is owner and _waits(run, each.data)
            if owner.scope.module.is_main or getattr(each.data.node, "name", "") in _CALLED_BY_FRAMEWORKS
        ]
        if not waiting and not methods:
            return
        for function in waiting:
            if _waits(run, function):
                _enter(run, function, None)
        for owner, method in methods:
            if _waits(run, method):
                _enter(run, method, owner)


def _waits(run: Run, function: Function) -> bool:
    main = function.scope.module.is_main or function.owner is not None
    return main and function.node not in run.followed and function.node not in run.dismissed and not run.telling.full


def _enter(run: Run, function: Function, owner: Class | None) -> None:
    node = function.node
    at = ast.copy_location(ast.Constant(None), node)
    run.steps = min(run.steps, MOST_STEPS - _ALLOWANCE)
    if owner is None or "staticmethod" in function.kinds:
        call_function(run, function, [], {}, at, assumed=True)
        return
    if not owner.made:
        instantiate(run, run.value(owner, at), [], {}, at, assumed=True)
    instance = owner.made[0] if "classmethod" not in function.kinds else run.value(owner, at)
    bound = Function(node, function.scope, function.defaults, owner, instance, function.kinds)
    if function.node not in run.followed:
        call_function(run, bound, [], {}, at, assumed=True)
