"""Choices that show in the text alone: the wrong end of a best checkpoint, adapters that nothing applies."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.terms import Term, leaves
from stayfinite.readers.configs.judges.fault import Fault, seen_at
from stayfinite.readers.configs.program.names import dotted_name

_BEST = lazy_regex(r"(?:^|[_.])best(?:$|_)", 2)
_FALLS = lazy_regex(r"(?:^|[_.])(?:\w*loss(?:es)?|wer|cer|eer|ppl|perplexity|r?mse|mae|fid|nll|err(?:or)?)(?:$|_)", 2)
_RISES = lazy_regex(
    r"(?:^|[_.])(?:acc(?:uracy)?\d?|f1|bleu|rouge\w*|m?ap(?:50)?|m?iou|dice|auc|auroc|psnr|ssim|recall|precision|r2)(?:$|_)",
    2,
)
_STRICT = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def best_picked(course: Course) -> Iterator[Fault]:
    """`score = -loss`, `if score < best: save()`; `if acc < best_acc: best_acc = acc`."""
    compared = {id(each.node): each for each in course.terms if each.op == "compare" and len(each.parts) == 2}
    for node in course.nodes:
        test = node.test if isinstance(node, ast.If) else None
        if not isinstance(node, ast.If) or not isinstance(test, ast.Compare) or not isinstance(test.ops[0], _STRICT):
            continue
        left, right = test.left, test.comparators[0]
        if len(test.ops) > 1 or _is_best(left) == _is_best(right):
            continue
        now, best = (right, left) if _is_best(left) else (left, right)
        smaller = isinstance(test.ops[0], (ast.Lt, ast.LtE)) == (now is left)
        term = compared.get(id(test))
        falls = _should_fall(term.parts[now is right] if term is not None else None, now, best)
        if falls is not None and falls != smaller and _keeps(node, now, best):
            kept, wanted = ("lowest", "highest") if smaller else ("highest", "lowest")
            text = f"the {kept} value is kept as the best; the {wanted} one is"
            fix = f"keep the {wanted} value: compare with {'>' if smaller else '<'}"
            yield seen_at("flipped-sign", text, test, when="finite", mild=True, fix=fix)


def _is_best(value: ast.expr) -> bool:
    return _BEST.search(dotted_name(value, {}) or "") is not None


def _should_fall(value: Term | None, now: ast.expr, best: ast.expr) -> bool | None:
    """Whether smaller is better; None where the names do not tell."""
    if value is not None and (value.op, value.name) == ("unary", "USub"):
        plain = _tells(ast.unparse(value.node.operand).replace("'", "_").replace("[", "_"))
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
            return ast.unparse(now) in ast.unparse(each.value)
    calls = [each.value for each in node.body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    return any("save" in dotted_name(each.func, {}).rpartition(".")[2] for each in calls)


_CONFIGS = frozenset({"LoraConfig", "AdaLoraConfig", "LoHaConfig", "LoKrConfig", "IA3Config", "OFTConfig", "VeraConfig",
                      "PrefixTuningConfig", "PromptTuningConfig"})  # fmt: skip
_TRAINS = frozenset({"train", "fit", "backward", "launch"})
_TRL = lazy_regex(r"(?:SFT|DPO|ORPO|KTO|Reward|CPO|GRPO)Trainer")
_APPLY = "get_peft_model(model, config), or peft_config=config of the trainer"
_QUANTIZED = lazy_regex(r"load_in_[48]bit ?= ?True|BitsAndBytesConfig\(|quantization_config|prepare_model_for_kbit")


def unused_adapters(course: Course, *, whole: bool) -> Iterator[Fault]:
    """Adapters that are configured and never applied, or frozen once more by the trainer that gets them."""
    trained = [each for each in course.terms if each.last.endswith("Trainer") and each.op in ("made", "call")]
    begun = whole and any(each.last in _TRAINS and each.op in ("call", "method") for each in course.terms)
    left_out = any(part.op == "const" and part.data is ... for each in trained for part in each.parts)
    used = {each.id for each in course.nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    for term in course.terms if (trained or begun) and not left_out else ():
        name = course.titles.get(id(term), ".") if term.op == "made" and term.last in _CONFIGS else "."
        if "." not in name and name not in used:
            text = "the adapter is configured and never applied: nothing reads its config"
            at = course.parents.get(term.node, term.node)
            # An excerpt may leave out where it is applied.
            yield seen_at("params-frozen", text, at, sure=whole, when="" if whole else "still", fix=_APPLY)
    for term in trained:
        model = term.given(0, "model")
        wrapped = model is not None and any(each.last == "get_peft_model" for each in leaves(model))
        if wrapped and _TRL.fullmatch(term.last) and _QUANTIZED.search(course.code):
            text = "the trainer gets a model with adapters on a quantized base: old trl freezes them again"
            fix = "give the trainer the plain model and peft_config="
            yield seen_at("params-frozen", text, term.node, sure=False, when="still", fix=fix)
