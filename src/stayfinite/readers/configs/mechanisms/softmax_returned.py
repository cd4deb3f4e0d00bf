"""A model whose forward returns probabilities, and a cross entropy that takes logits."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.mechanisms.code import FUNCTIONS, Code, Mechanism, last_name, name_of
from stayfinite.readers.configs.program.names import dotted_name

_TAKES_LOGITS = lazy_regex(r"CrossEntropyLoss|cross_entropy(?:_loss)?")
_OTHERWISE = lazy_regex(
    r"\bNLL|nll_loss|use_softmax=False|from_probs|soft_label|\.log\(\)|torch\.log\(|log_softmax|Categorical\(|"
    r"policy|actor|reinforce|kl_div|\bmap\(",
    2,
)
_PART = lazy_regex(r"\w*(?:atten|attn|gate|rout|head|pool|memory|select)\w*", 2)


def softmax_returned(code: Code) -> Iterator[Mechanism]:
    """`return F.softmax(x)` in the forward of the outermost model, beside `CrossEntropyLoss()`."""
    losses = [each for each in code.calls if _TAKES_LOGITS.fullmatch(last_name(each.func))]
    if not losses or _OTHERWISE.search(code.text):
        return
    inner = {name_of(each) for each in code.calls if code.class_of(each) is not None}
    for forward in (each for each in code.nodes if isinstance(each, FUNCTIONS) and each.name == "forward"):
        owner = code.class_of(forward)
        if owner is not None and (owner.name in inner or _PART.fullmatch(owner.name)):
            continue
        returns = [each for each in ast.walk(forward) if isinstance(each, ast.Return) and each.value is not None]
        shown = [_softmax(code, each) for each in returns]
        if shown and all(each is not None for each in shown):
            text = "forward() returns a softmax, and cross entropy applies another"
            yield Mechanism("softmax-before-cross-entropy", text, shown[0] or returns[0])


def _softmax(code: Code, returned: ast.Return) -> ast.expr | None:
    """The softmax that a return gives back, itself or by name."""
    value = returned.value
    if isinstance(value, ast.Name):
        value = code.value_of(value, returned)
    if not isinstance(value, ast.Call):
        return None
    if last_name(value.func) == "softmax":
        return value
    layers = code.objects(value.func) if isinstance(value.func, ast.Attribute) else []
    named = dotted_name(value.func, {}).startswith("self.")
    made = bool(layers) and all(each is not None and name_of(each) == "Softmax" for each in layers)
    return value if named and made else None
