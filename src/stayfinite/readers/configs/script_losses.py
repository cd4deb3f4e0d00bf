"""Find the lines of a script that compute the loss, for rules about formulas and detached graphs."""

from __future__ import annotations

import ast
import re

_TELLING_CALLS = re.compile(
    r"backward|manual_backward|detach|detach_|item|numpy|tolist|log|log2|log10|log1p|logsumexp|sqrt|rsqrt|exp|expm1|"
    r"pow|acos|asin|acosh|atanh|arccos|arcsin|norm|cdist|softmax|log_softmax|sigmoid|logsigmoid|softplus|where|"
    r"masked_fill|masked_fill_|clamp|clip|clamp_|cross_entropy|nll_loss|binary_cross_entropy|"
    r"binary_cross_entropy_with_logits|mse_loss|kl_div|cosine_similarity|normalize|std|var|div|reciprocal|no_grad|"
    r"from_numpy|requires_grad_|scale|step|zero_grad|zero_grads|clear_grad|clear_gradients|zero_|clip_grad_norm_|clip_grad_value_|unscale_|"
    r"resize_token_embeddings"
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
