"""Quote statements of a script: those that compute a loss, and commands in strings."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.commands import looks_like_command
from stayfinite.readers.configs.program.state import Origin
from stayfinite.readers.configs.script_settings import ScriptSettings

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
