"""Evaluate a whole script, including functions that nothing calls, and choose which values become settings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePath

from stayfinite.core.settings import Expression
from stayfinite.readers.configs.course.uncalled import course_of_parts
from stayfinite.readers.configs.judges import faults_of_parts, script_faults
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.loops import HOLDS_LOSS, Loops
from stayfinite.readers.configs.judges.losses import GIVEN, probabilities_given
from stayfinite.readers.configs.program.expressions import call_function, call_value, evaluate, instantiate
from stayfinite.readers.configs.program.files import Modules, pages_of
from stayfinite.readers.configs.program.names import MAPPINGS, dotted_name, given_argument
from stayfinite.readers.configs.program.state import (
    MOST_STEPS,
    Call,
    Class,
    Frame,
    Function,
    Origin,
    Run,
    Scope,
    Surroundings,
    Table,
    Unknown,
    Value,
    node_of,
)
from stayfinite.readers.configs.program.statements import execute
from stayfinite.readers.configs.program.weights import UNKNOWN, Weights
from stayfinite.readers.configs.scalars import dtype_name
from stayfinite.readers.configs.script_calls import (
    argument_of,
    declares_fields,
    field_default,
    fields_of,
    is_constructor,
    is_optimizer,
    is_other_learner,
    matters_by_itself,
    told_arguments,
    value_position,
)
from stayfinite.readers.configs.script_settings import ScriptSettings
from stayfinite.readers.configs.tree import Node
from stayfinite.rules.precision_settings import TRAINED

_TELLING_NAMES = frozenset(
    {"fp16", "bf16", "dtype", "torch_dtype", "precision", "lr", "learning_rate", "eps", "requires_grad"}
)
"""Names recorded even if their value is unknown."""
_COMPUTED = (ast.Call, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.JoinedStr, ast.BinOp)


class Telling:
    """Adds to the settings of a script; ``every`` records all arguments of all calls."""

    def __init__(self, found: ScriptSettings, *, every: bool) -> None:
        self._found = found
        self._every = every
        self._silent = 0
        self._tables: list[tuple[str, Value, int, bool]] = []
        self._left: dict[ast.AST, dict[str, None]] = {}

    @property
    def full(self) -> bool:
        return self._found.full

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Record nothing in here, because it is recorded elsewhere."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

    def under(self, run: Run, name: str, look: Callable[[], Value]) -> Value:
        """Evaluate a value that belongs to a keyword or key of this name."""
        frame = run.frame
        before = frame.target
        frame.target = f"{before} {name}" if before else name
        try:
            return look()
        finally:
            frame.target = before

    def call(self, run: Run, name: str, call: Call) -> None:
        """Record the arguments of a call that says how the script trains, or that it is made."""
        last, node = name.rpartition(".")[2], call.node
        if self._silent or not last or last in MAPPINGS or is_other_learner(last):
            return
        if isinstance(node, ast.Call) and self._argument(run, node, last, call):
            return
        present: object = True
        recorded = 0
        for key, value, written in told_arguments(call, last, every=self._every):
            if last in {"to", "type"} and not _is_dtype(value, written):
                continue
            key = _better_key(last, key, value)
            shown = self._add(run, f"{name}.{key}", value, written)
            present = shown.value if key == "enabled" and isinstance(shown.value, bool) else present
            recorded += 1
        if is_optimizer(name):
            self._note(run, "optimizer", last, node)
        if matters_by_itself(last) or (is_constructor(last) and not recorded):
            if value_position(last) and len(call.positional) == 1:
                present = _shown(run, call.positional[0], node).value
            self._note(run, name, present, node, once=True)

    def later(self, run: Run, name: str, call: Call) -> Callable[[], None]:
        """Like ``call``, but delayed until the object is used; located where it is made."""
        frame = run.frame

        def tell() -> None:
            with run.inside(frame):
                self.call(run, name, call)

        return tell

    def _argument(self, run: Run, node: ast.Call, last: str, call: Call) -> bool:
        """`parser.add_argument("--lr", default=1e-4)`."""
        argument = argument_of(node, last)
        if argument is None:
            return False
        if given_argument(run, argument.name) is None:
            value = call.keywords.get("default")
            if value is None:
                with self.silence():
                    value = run.evaluate(run, argument.default)
            shown = _shown(run, value, argument.default)
            if not isinstance(shown.value, Expression):
                shown.line, shown.source = node.lineno, run.frame.scope.origin.source
                self._put(run, argument.name, shown, kind="default")
        return True

    def assignment(self, run: Run, target: ast.expr, key: str, value: Value, written: ast.expr) -> None:
        """`config.lr = 1e-4`, `dtype = torch.float16`."""
        scope = run.frame.scope
        beside = not scope.module.is_main
        if self._silent or (beside and (scope.parent is None or isinstance(target, ast.Name))):
            return  # names of other modules are recorded where they are used
        if isinstance(value.data, Table) and isinstance(written, (ast.Name, ast.Attribute)):
            return  # another name for the same table
        name = dotted_name(target, {})
        name = f"{name}.{key}" if key else name
        shown = _shown(run, value, written)
        if name and isinstance(value.data, Table):
            if not value.data.is_told:
                self._tables.append((name, value, run.main_line, run.in_doubt))  # recorded at the end
        elif name and (not isinstance(shown.value, Expression) or _is_worth_keeping(name, target, written)):
            self._put(run, name, shown)

    def config(self, value: Value, at: int) -> None:
        """Record a config that a framework hands to the script's main function."""
        if not self._silent:
            self._tables.append(("config", value, at, False))

    def left_at_default(self, function: Function, name: str) -> None:
        """Note that a call leaves a parameter at its default."""
        self._left.setdefault(function.node, {})[name] = None

    def rest(self, run: Run) -> None:
        """At the end, record dicts in their final state and the remaining defaults of parameters and fields."""
        self._weights(run)
        for name, value, at, doubtful in self._tables:
            self._found.add_node(name, node_of(value), at=at, doubtful=doubtful)
        methods = [
            each.data for owner in run.classes for each in owner.names.values() if isinstance(each.data, Function)
        ]
        for function in (*run.functions, *methods):
            if isinstance(function.node, ast.Lambda) or not function.scope.module.is_main:
                continue
            for name in self._left.get(function.node, ()):
                value = function.defaults[name]
                if value.data is not None:
                    self._default(f"{function.node.name}.{name}", value, function.node.lineno, kind="default")
        for owner in run.classes:
            if not owner.scope.module.is_main:
                continue
            kind = "default" if declares_fields(owner.node) else ""
            for name, _, line in fields_of(owner.node):
                used = name in owner.left or not (name in owner.overruled or _is_hidden(run, owner, name))
                if used and name in owner.names:
                    self._default(f"{owner.node.name}.{name}", owner.names[name], line, kind=kind)

    def _weights(self, run: Run) -> None:
        """Record the dtype of the trained weights, if any model of the script is in fp16: maybe another one."""
        run.weights.settle()
        for cast in run.weights.settled.values() if run.weights.has_halves else ():
            if cast is None:
                self._found.add_node(TRAINED, Node(None, 0))
            else:
                value = Expression(cast.dtype) if cast.dtype == UNKNOWN else cast.dtype
                shown = Node(value, cast.line, source=cast.source)
                self._found.add_node(f"{cast.name}.{TRAINED}", shown, at=cast.main_line, doubtful=cast.doubtful)

    def _default(self, name: str, value: Value, at: int, *, kind: str) -> None:
        shown = node_of(value)
        if not isinstance(shown.value, Expression):
            self._found.add_node(name, shown, kind=kind or shown.kind, at=at)

    def _add(self, run: Run, name: str, value: Value, written: ast.expr | None) -> Node:
        shown = node_of(value) if written is None else _shown(run, value, written)
        self._put(run, name, shown, bound_to=run.targets)
        return shown

    def _put(self, run: Run, name: str, shown: Node, *, kind: str = "", bound_to: str = "") -> None:
        self._found.add_node(name, shown, kind=kind, at=run.main_line, bound_to=bound_to, doubtful=run.in_doubt)

    def _note(self, run: Run, name: str, value: object, node: ast.expr, *, once: bool = False) -> None:
        shown = Node(value, node.lineno, source=run.frame.scope.origin.source)
        self._found.add_node(name, shown, at=run.main_line, once=once, bound_to=run.targets, doubtful=run.in_doubt)


def _is_hidden(run: Run, owner: Class, name: str) -> bool:
    """Whether a class is only a base of others that all override this field."""
    others = [each for each in run.classes if any(base.data is owner for base in each.bases)]
    return bool(others) and not owner.made and all(name in each.names for each in others)


def _shown(run: Run, value: Value, written: ast.expr) -> Node:
    """The value as settings show it; if unknown, the expression written here."""
    here = Value(Unknown(), run.frame.scope.origin, written.lineno, written)
    return node_of(value, here)


def _is_dtype(value: Value, written: ast.expr | None) -> bool:
    if value.is_scalar:
        return isinstance(value.data, str) and dtype_name(f"torch.{value.data}") is not None
    return "dtype" in value.text or (isinstance(written, ast.Name) and "dtype" in written.id)


def _better_key(last: str, key: str, value: Value) -> str:
    """Parameter names of the older forms `torch.cuda.amp.autocast(True)` and `GradScaler(65536.0)`."""
    if key in {"device_type", "device"}:
        if isinstance(value.data, bool):
            return "enabled"
        if isinstance(value.data, (int, float)) and last == "GradScaler":
            return "init_scale"
    return key


def _is_worth_keeping(name: str, target: ast.expr, written: ast.expr) -> bool:
    """Unknown values that say how to train: `fp16 = not is_bf16_supported()`, `group["lr"] = rate`."""
    if name.rpartition(".")[2].lower() not in _TELLING_NAMES:
        return False
    return isinstance(written, _COMPUTED) or isinstance(target, ast.Subscript)


_MOST_ROUNDS = 4  # nesting of uncalled functions
_CALLED_BY_FRAMEWORKS = frozenset({
    "configure_optimizers", "training_step", "create_optimizer", "create_scheduler", "compute_loss", "train", "fit",
    "create_optimizer_and_scheduler", "train_dataloader", "setup", "optimizer_step", "run", "step",
})  # fmt: skip
"""Methods of imported classes that say how the script trains; the others only define the model."""
_ALLOWANCE = 2_000  # steps guaranteed to each of them, so that early ones cannot use up the budget


def follow(
    tree: ast.Module, text: str, found: ScriptSettings, surroundings: Surroundings, *, every: bool = False, alone: bool
) -> None:
    """Add the settings of a script to ``found``; ``every`` argument of all calls, ``alone`` without other files."""
    telling = Telling(found, every=every)
    run = Run(surroundings, telling, Modules(), evaluate, execute, call_value, _call_assumed, Weights())
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
    _take_faults(run, tree, text, found)


def _take_faults(run: Run, tree: ast.Module, text: str, found: ScriptSettings) -> None:
    """Faults of the script, and of functions that it calls in modules beside it."""
    pages = pages_of(run, tree)
    course = course_of_parts(tree, pages)
    updates, of_whole = script_faults(tree, "\n".join([text, *map(ast.unparse, pages.trees[1:])]), pages)
    told = {(each.cause, *pages.place(each.line)) for each in (*updates, *of_whole)}

    def tell(fault: Fault, source: str = "", *, whole: bool = False) -> None:
        file, line = pages.place(fault.line)
        found.faults.append(replace(fault, line=line).told(source or file, whole=whole))

    for each in (*updates, *faults_of_parts(course, whole=True)):
        tell(each)
    for each in of_whole:
        tell(each, whole=True)
    beside = [(each.origin.source, "\n".join(each.origin.lines), each.tree, set(run.followed))
              for each in run.modules.scopes.values() if each.tree is not None]  # fmt: skip
    for source, lines, part, followed in [("", text, tree, None), *beside]:
        loops = Loops(course if not source else course_of_parts(part), lines, followed)
        for fault in loops.faults():
            file, line = pages.place(fault.line)
            if (fault.cause, source or file, line) not in told:
                tell(fault, source)
        for call, dtype, line in loops.unscaled_autocasts():
            file, at = pages.place(line)
            found.add_node(f"{call}.{HOLDS_LOSS}", Node(dtype, at, source=source or file or found.source))
    for given in probabilities_given(course):
        if not pages.place(given.lineno)[0]:
            found.note(given.lineno, f"{GIVEN}: {run.frame.scope.origin.text_of(given)}")


def _call_assumed(run: Run, value: Value, node: ast.expr) -> Value:
    if isinstance(value.data, Class):
        return instantiate(run, value, Call(node, is_open=True))
    if isinstance(value.data, Function):
        return call_function(run, value.data, Call(node, is_open=True))
    return run.unknown(node)


def _declare(run: Run, tree: ast.Module, scope: Scope) -> None:
    """Collect arguments and fields by name, for code reached in unsupported ways."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for name, value, _ in fields_of(node):
                default = field_default(value)
                if default is not None:
                    run.declared.setdefault(name, []).append((default, scope))
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
        call_function(run, function, Call(at, is_open=True))
        return
    if not owner.made:
        instantiate(run, run.value(owner, at), Call(at, is_open=True))
    instance = owner.made[0] if "classmethod" not in function.kinds else run.value(owner, at)
    if function.node not in run.followed:
        call_function(run, replace(function, owner=owner, bound=instance), Call(at, is_open=True))
