"""What the names in a script stand for: imports under another name, constants, arguments with defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

_MOST_DOTS = 30


@dataclass(frozen=True, slots=True)
class Bound:
    """A value that a name was given somewhere."""

    value: ast.expr
    scope: str
    line: int
    conditional: bool = False
    is_default: bool = False


@dataclass(slots=True)
class Names:
    """All names of one script."""

    aliases: dict[str, str] = field(default_factory=dict)
    """`F` -> `torch.nn.functional`, for what is imported under another name."""
    modules: set[str] = field(default_factory=set)
    bound: dict[tuple[str, str], list[Bound]] = field(default_factory=dict)
    """By scope and name."""
    defaults: dict[str, list[Bound]] = field(default_factory=dict)
    """Of command line arguments and dataclass fields, by their name alone."""
    parameters: set[tuple[str, str]] = field(default_factory=set)
    """Scope and name of parameters that have no default: nobody knows them."""

    def bind(self, scope: str, name: str, bound: Bound) -> None:
        """Remember a value of a name."""
        self.bound.setdefault((scope, name), []).append(bound)

    def look_up(self, name: str, scope: str, line: int) -> Bound | None:
        """The value that a name has at a line, if there is no doubt about it."""
        for each in _outwards(scope):
            if (each, name) in self.parameters:
                return None
            found = self.bound.get((each, name))
            if found:
                return _chosen(found, line if each == scope else None)
        return None

    def default_of(self, attribute: ast.Attribute) -> Bound | None:
        """The default behind `args.lr`, where all arguments and fields of that name agree on one."""
        if not isinstance(attribute.value, (ast.Name, ast.Attribute)):
            return None
        if isinstance(attribute.value, ast.Name) and attribute.value.id in self.modules:
            return None
        found = self.defaults.get(attribute.attr, [])
        return found[0] if found and all(_same(each.value, found[0].value) for each in found) else None


def dotted_name(node: ast.expr, aliases: dict[str, str]) -> str:
    """`torch.optim.AdamW` of such an expression; calls and indices in between are passed over. Empty for others."""
    parts: list[str] = []
    for _ in range(_MOST_DOTS):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.args[0] if _is_lazy_call(node) else node.func
        elif isinstance(node, (ast.Subscript, ast.Await)):
            node = node.value
        elif isinstance(node, ast.Name):
            parts.append(aliases.get(node.id, node.id))
            break
        else:
            break
    return ".".join(reversed(parts))


def names_of(tree: ast.Module) -> Names:
    """Go over a script once."""
    names = Names()
    for statement, scope, conditional in statements(tree):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            _take_import(statement, names)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            _take_target(statement.targets[0], statement.value, names, scope, conditional)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            _take_target(statement.target, statement.value, names, scope, conditional)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            names.parameters.add((scope, statement.target.id))
        elif isinstance(statement, (ast.For, ast.AsyncFor)):
            for target in ast.walk(statement.target):
                if isinstance(target, ast.Name):
                    names.parameters.add((scope, target.id))
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            _take_parameters(statement, names, inner_scope(scope, statement.name))
    return names


def statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, str, bool]]:
    """Every statement in the order of the source, with its scope and whether it may not run, or run several times."""
    work: list[tuple[ast.stmt, str, bool]] = [(each, "", False) for each in reversed(tree.body)]
    while work:
        statement, scope, conditional = work.pop()
        yield statement, scope, conditional
        inside = scope
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = inner_scope(scope, statement.name)
        harmless = isinstance(statement, (ast.With, ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        inner_conditional = False if inside != scope else conditional or not (harmless or _is_main(statement))
        children = [
            child
            for part in ("body", "handlers", "orelse", "finalbody", "cases")
            for each in getattr(statement, part, [])
            for child in (each.body if isinstance(each, (ast.ExceptHandler, ast.match_case)) else [each])
        ]
        work.extend((child, inside, inner_conditional) for child in reversed(children))


def inner_scope(scope: str, name: str) -> str:
    """`Trainer.fit` within `Trainer`."""
    return f"{scope}.{name}" if scope else name


def function_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Each parameter that has a default."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    with_defaults = positional[len(positional) - len(arguments.defaults) :]
    for argument, default in zip(with_defaults, arguments.defaults, strict=True):
        yield argument.arg, default
    for argument, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_default is not None:
            yield argument.arg, keyword_default


def _outwards(scope: str) -> Iterator[str]:
    while scope:
        yield scope
        scope = scope.rpartition(".")[0]
    yield ""


def _chosen(found: list[Bound], line: int | None) -> Bound | None:
    if all(_same(each.value, found[0].value) for each in found):
        return found[0]
    if any(each.conditional for each in found):
        return None
    before = [each for each in found if line is None or each.line < line]
    return before[-1] if before else None


def _same(one: ast.expr, other: ast.expr) -> bool:
    if one is other:
        return True
    return isinstance(one, ast.Constant) and isinstance(other, ast.Constant) and repr(one.value) == repr(other.value)


def _is_lazy_call(call: ast.Call) -> bool:
    """`L(AdamW)(lr=1e-4)`: detectron2's way to describe a call."""
    return isinstance(call.func, ast.Name) and call.func.id in {"L", "LazyCall"} and len(call.args) == 1


def _is_main(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":` always runs, for us."""
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Compare)
        and isinstance(statement.test.left, ast.Name)
        and statement.test.left.id == "__name__"
    )


def _take_import(statement: ast.Import | ast.ImportFrom, names: Names) -> None:
    for each in statement.names:
        if isinstance(statement, ast.Import):
            names.modules.add(each.asname or each.name.partition(".")[0])
            if each.asname:
                names.aliases[each.asname] = each.name
        elif each.asname:
            names.aliases[each.asname] = each.name


def _take_target(target: ast.expr, value: ast.expr, names: Names, scope: str, conditional: bool) -> None:
    if isinstance(target, ast.Name):
        names.bind(scope, target.id, Bound(value, scope, target.lineno, conditional))
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for each, part in zip(target.elts, value.elts, strict=True):
            if isinstance(each, ast.Name):
                names.bind(scope, each.id, Bound(part, scope, each.lineno, conditional))


def _take_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, names: Names, scope: str) -> None:
    defaults = dict(function_defaults(function))
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        default = defaults.get(argument.arg)
        if default is None:
            names.parameters.add((scope, argument.arg))
        else:
            bound = Bound(default, scope.rpartition(".")[0], function.lineno, is_default=True)
            names.bind(scope, argument.arg, bound)
