"""Quote statements of a script: those that compute a loss, commands in strings, probabilities given to cross entropy.

Probabilities are noted only where the syntax tree proves it: a softmax for a metric, in attention, in a gate or in
`predict` is fine. Names are therefore followed to their last assignment before the call, to the model behind them,
and to the return value of its `forward`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.commands import looks_like_command
from stayfinite.readers.configs.program.names import dotted_name
from stayfinite.readers.configs.program.values import Origin
from stayfinite.readers.configs.script_settings import ScriptSettings

GIVEN = "cross entropy is given probabilities"  # the text of the note

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PASSED_THROUGH = frozenset(
    {"to", "cuda", "cpu", "train", "float", "compile", "DataParallel", "DistributedDataParallel"}
)
"""Calls that return the model they are given or called on."""
_DEEPEST = 8


def probabilities_given(tree: ast.Module) -> list[ast.expr]:
    """The input of each cross-entropy call that is certainly the result of a softmax."""
    try:
        return _Search(tree).inputs()
    except RecursionError:  # a thousand nested `elif`
        return []


class _Search:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        self._own = {node.name for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
        self._assigned = _assignments(tree)

    def inputs(self) -> list[ast.expr]:
        """The inputs, in scope order."""
        found: list[ast.expr] = []
        for scope in [self._tree, *(node for node in ast.walk(self._tree) if isinstance(node, _FUNCTIONS))]:
            for statement, known in _in_order(scope.body, {}):
                for node in _own_nodes(statement):
                    if isinstance(node, ast.Call) and self._is_cross_entropy(node.func):
                        inputs = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "input")]
                        given = inputs[0] if inputs else None
                        if given is not None and self._is_softmax(given, known, self._assigned):
                            found.append(given)
        return found

    def _is_cross_entropy(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Call):
            return _last(function.func) == "CrossEntropyLoss"
        if _last(function) == "cross_entropy" and "cross_entropy" not in self._own:
            return True
        values = self._assigned.get(dotted_name(function, {}), [])
        return bool(values) and all(
            isinstance(value, ast.Call) and _last(value.func) == "CrossEntropyLoss" for value in map(_bare, values)
        )

    def _is_softmax(
        self, value: ast.expr, known: dict[str, ast.expr], assigned: dict[str, list[ast.expr]], depth: int = 0
    ) -> bool:
        """Whether a value is the result of a softmax, or of a model that ends in one."""
        if depth > _DEEPEST:
            return False
        if isinstance(value, ast.Name):
            return value.id in known and self._is_softmax(known[value.id], known, assigned, depth + 1)
        if not isinstance(value, ast.Call):
            return False
        function = value.func
        if isinstance(function, ast.Call):  # nn.Softmax(dim=1)(x), Net()(x)
            return self._ends_in_softmax(function, depth + 1)
        name = dotted_name(function, {})
        owner = name.rpartition(".")[0]
        if name in assigned:
            models = [model for model in map(_bare, assigned[name]) if dotted_name(model, {}) != name]
            return bool(models) and all(self._ends_in_softmax(model, depth + 1) for model in models)
        return _last(function) == "softmax" and owner != "self" and name not in self._own

    def _ends_in_softmax(self, model: ast.expr, depth: int) -> bool:
        """Whether a model ends in a softmax: the layer itself, a stack that ends in it, a class."""
        model = _bare(model)
        if depth > _DEEPEST or not isinstance(model, ast.Call):
            return False
        last = _last(model.func)
        if last == "Sequential" and model.args:
            return self._ends_in_softmax(model.args[-1], depth + 1)
        forward = _method(self._classes.get(last), "forward")
        if forward is None:
            return last == "Softmax" and last not in self._classes
        everywhere = _assignments(self._classes[last])
        inside = {name: values for name, values in everywhere.items() if name.startswith("self.")}
        returned = [
            statement.value is not None and self._is_softmax(statement.value, known, inside, depth + 1)
            for statement, known in _in_order(forward.body, {})
            if isinstance(statement, ast.Return)
        ]
        return bool(returned) and all(returned)


def _in_order(body: list[ast.stmt], known: dict[str, ast.expr]) -> Iterator[tuple[ast.stmt, dict[str, ast.expr]]]:
    """Yield each statement with the names known for certain when it starts; ``known`` is updated."""
    for statement in body:
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            continue
        yield statement, known
        certain = isinstance(statement, (ast.With, ast.AsyncWith))
        for inner in _bodies(statement):
            seen = known if certain else dict(known)
            yield from _in_order(inner, seen)
        for name, value in _set_by(statement, deep=not certain):
            known.pop(name, None)
            if value is not None:
                known[name] = value


def _bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    inner = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    inner += [case.body for case in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))]
    return [body for body in inner if isinstance(body, list)]


def _set_by(statement: ast.stmt, *, deep: bool) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a statement sets, with the value if certain, else None."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        yield statement.targets[0].id, statement.value
    elif not _bodies(statement) or deep:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, None


def _assignments(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """Every value assigned to `name` or `self.name`."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found.setdefault(dotted_name(target, {}), []).append(node.value)
    found.pop("", None)
    return found


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of nested statements."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, (ast.expr, ast.withitem)):
            yield from ast.walk(child)


def _bare(model: ast.expr) -> ast.expr:
    """The model without wrappers and moves: `Net().to(device)` is `Net()`."""
    for _ in range(_DEEPEST):
        if not isinstance(model, ast.Call) or _last(model.func) not in _PASSED_THROUGH:
            break
        owner = model.func.value if isinstance(model.func, ast.Attribute) else None
        of_a_module = owner is None or dotted_name(owner, {}) in ("nn", "torch", "torch.nn", "torch.nn.parallel")
        inner = (model.args[0] if model.args else None) if of_a_module else owner
        if inner is None:
            break
        model = inner
    return model


def _method(owner: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    body = owner.body if owner is not None else []
    return next((each for each in body if isinstance(each, ast.FunctionDef) and each.name == name), None)


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


_TELLING_CALLS = lazy_regex(
    r"backward|manual_backward|detach|detach_|item|numpy|tolist|log|log2|log10|log1p|logsumexp|sqrt|rsqrt|exp|expm1|"
    r"pow|acos|asin|acosh|atanh|arccos|arcsin|norm|cdist|softmax|log_softmax|sigmoid|logsigmoid|softplus|where|"
    r"masked_fill|masked_fill_|clamp|clip|clamp_|cross_entropy|nll_loss|binary_cross_entropy|"
    r"binary_cross_entropy_with_logits|mse_loss|kl_div|cosine_similarity|normalize|std|var|div|reciprocal|no_grad|"
    r"from_numpy|requires_grad_|scale|step|zero_grad|zero_grads|clear_grad|clear_gradients|zero_|clip_grad_norm_|"
    r"clip_grad_value_|unscale_|resize_token_embeddings"
)
_TENSORS = frozenset({"tensor", "Tensor", "as_tensor", "Variable", "FloatTensor"})
_LOOPS = (ast.For, ast.While)
_PLAIN = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.With)
MOST_NODES = 2_000  # nodes examined per statement


def is_telling(statement: ast.stmt) -> bool:
    """Whether a statement computes, detaches or uses a loss, or computes something without a finite gradient."""
    if isinstance(statement, _LOOPS):
        return _takes_steps(statement) and not any(
            isinstance(node, _LOOPS) and node is not statement and _takes_steps(node) for node in _nodes(statement)
        )
    if not isinstance(statement, _PLAIN):
        return False
    if any("loss" in name.lower() or name == "grad" for name in _targets(statement)):
        return True
    if isinstance(statement, ast.With):
        roots: list[ast.AST] = [item.context_expr for item in statement.items]
    else:
        roots = [statement]
    return any(_tells(node) for root in roots for node in _nodes(root))


def _takes_steps(loop: ast.AST) -> bool:
    """Whether a loop calls backward and step: a training loop, whose missing calls matter.

    Loops that create an optimizer per iteration, for fresh values, do not count: nothing carries over.
    """
    functions = [node.func for node in _nodes(loop) if isinstance(node, ast.Call)]
    called = [(ast.unparse(each.value), each.attr) for each in functions if isinstance(each, ast.Attribute)]
    steps = any(name == "step" and "sched" not in owner.lower() for owner, name in called)
    makes = any(owner.rpartition(".")[2] == "optim" for owner, _ in called)
    return steps and not makes and any(name in ("backward", "manual_backward") for _, name in called)


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        targets = [statement.target]
    else:
        return []
    return [
        node.id if isinstance(node, ast.Name) else node.attr
        for target in targets
        for node in ast.walk(target)
        if isinstance(node, (ast.Name, ast.Attribute))
    ]


def _nodes(root: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = [root]
    for node in found:
        found.extend(ast.iter_child_nodes(node))
        if len(found) > MOST_NODES:
            break
    return found


def _tells(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return not isinstance(node.left, ast.Constant)
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _TENSORS:
        return any(
            "loss" in part.id.lower() for each in node.args for part in ast.walk(each) if isinstance(part, ast.Name)
        )
    return _TELLING_CALLS.fullmatch(name) is not None or name.lower().endswith("loss")


_LONGEST_COMMAND = 5_000


def take_notes(tree: ast.Module, text: str, found: ScriptSettings) -> None:
    """Note the lines that compute the loss and every command, whether reachable or not."""
    origin = Origin(found.source, text.split("\n"))
    for statement in _statements(tree):
        if is_telling(statement):
            found.note(statement.lineno, _line_of(statement, origin))
        for expression in _own_expressions(statement):
            for node in ast.walk(expression):
                _take_command(node, found)
    small = text.lower()
    for given in probabilities_given(tree) if "softmax" in small and "cross" in small else ():
        found.note(given.lineno, f"{GIVEN}: {origin.text_of(given)}")


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement, in source order."""
    work: list[ast.stmt] = list(reversed(tree.body))
    while work:
        statement = work.pop()
        yield statement
        children = [
            child
            for part in ("body", "handlers", "orelse", "finalbody", "cases")
            for each in getattr(statement, part, [])
            for child in (each.body if isinstance(each, (ast.ExceptHandler, ast.match_case)) else [each])
        ]
        work.extend(reversed(children))


def _take_command(node: ast.AST, found: ScriptSettings) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < _LONGEST_COMMAND:
        if "--" in node.value and looks_like_command(node.value):
            found.add_command(node.value, node.lineno)
    elif isinstance(node, (ast.List, ast.Tuple)):
        _take_listed_command(node, found)


def _take_listed_command(node: ast.List | ast.Tuple, found: ScriptSettings) -> None:
    """`parser.parse_args(["--fp16", "--lr", "1e-4"])`, `subprocess.run(["python", "train.py", "--fp16"])`."""
    words = [each.value if isinstance(each, ast.Constant) else None for each in node.elts]
    if not any(isinstance(word, str) and word.startswith("--") and len(word) > 3 for word in words):
        return
    quoted = [_shell_word(str(word)) for word in words if word is not None]
    found.add_command(" ".join(quoted), node.lineno, noted=False)


def _line_of(statement: ast.stmt, origin: Origin) -> str:
    if isinstance(statement, ast.With):
        return "with " + ", ".join(origin.text_of(item.context_expr) for item in statement.items)
    if isinstance(statement, ast.For):
        return f"for {origin.text_of(statement.target)} in {origin.text_of(statement.iter)}:"
    if isinstance(statement, ast.While):
        return f"while {origin.text_of(statement.test)}:"
    return origin.text_of(statement)


def _own_expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement, without those of nested statements."""
    found: list[ast.expr] = []
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            found.append(child)
        elif isinstance(child, ast.withitem):
            found.append(child.context_expr)
        elif isinstance(child, ast.keyword):
            found.append(child.value)
    return found


def _shell_word(word: str) -> str:
    return "'" + word.replace("'", "") + "'" if not word or any(character in " \"'$\\" for character in word) else word
