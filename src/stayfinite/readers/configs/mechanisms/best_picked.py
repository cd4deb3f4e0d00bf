"""A best checkpoint that is picked by the wrong end: the highest loss, the lowest score, a loss that was negated."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.mechanisms.code import Code, Mechanism, last_name
from stayfinite.readers.configs.program.names import dotted_name

_BEST = lazy_regex(r"(?:^|[_.])best(?:$|_)", 2)
_FALLS = lazy_regex(r"(?:^|[_.])(?:\w*loss(?:es)?|wer|cer|eer|ppl|perplexity|r?mse|mae|fid|nll|err(?:or)?)(?:$|_)", 2)
_RISES = lazy_regex(
    r"(?:^|[_.])(?:acc(?:uracy)?\d?|f1|bleu|rouge\w*|m?ap(?:50)?|m?iou|dice|auc|auroc|psnr|ssim|recall|precision|r2)(?:$|_)",
    2,
)
_STRICT = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def best_picked(code: Code) -> Iterator[Mechanism]:
    """`score = -loss`, `if score < best: save()`; `if acc < best_acc: best_acc = acc`."""
    for node in code.nodes:
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare) or len(node.test.ops) != 1:
            continue
        left, right = node.test.left, node.test.comparators[0]
        if not isinstance(node.test.ops[0], _STRICT) or _is_best(left) == _is_best(right):
            continue
        now, best = (right, left) if _is_best(left) else (left, right)
        smaller = isinstance(node.test.ops[0], (ast.Lt, ast.LtE)) == (now is left)
        falls = _should_fall(code, now, best)
        if falls is not None and falls != smaller and _keeps(node, now, best):
            kept, wanted = ("lowest", "highest") if smaller else ("highest", "lowest")
            text = f"the {kept} value is kept as the best; the {wanted} one is"
            fix = f"keep the {wanted} value: compare with {'>' if smaller else '<'}"
            yield Mechanism("flipped-sign", text, node.test, when="finite", mild=True, fix=fix)


def _is_best(value: ast.expr) -> bool:
    return _BEST.search(dotted_name(value, {}) or "") is not None


def _should_fall(code: Code, now: ast.expr, best: ast.expr) -> bool | None:
    """Whether smaller is better; None where the names do not tell."""
    value = code.value_of(now, now)
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        plain = _tells(ast.unparse(value.operand).replace("'", "_").replace("[", "_"))
        return None if plain is None else not plain
    told = {_tells(dotted_name(each, {}) or "") for each in (now, best)} - {None}
    return told.pop() if len(told) == 1 else None


def _tells(name: str) -> bool | None:
    falls, rises = _FALLS.search(name) is not None, _RISES.search(name) is not None
    return falls if falls != rises else None


def _keeps(node: ast.If, now: ast.expr, best: ast.expr) -> bool:
    """Whether the branch saves, or remembers the value as the best, and does nothing such as counting patience."""
    for each in node.body:
        if isinstance(each, ast.Assign) and dotted_name(each.targets[0], {}) == dotted_name(best, {}):
            return ast.unparse(each.value) == ast.unparse(now) or ast.unparse(now) in ast.unparse(each.value)
    calls = [each.value for each in node.body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    return any("save" in last_name(each.func) for each in calls)
