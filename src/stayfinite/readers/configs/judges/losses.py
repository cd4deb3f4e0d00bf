"""Losses: what they are given, where their gradient is not finite, and whether their sign is right."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import is_learned, optimizers
from stayfinite.readers.configs.course.picking import STACKS, truth
from stayfinite.readers.configs.course.shapes import Shapes, crosses
from stayfinite.readers.configs.course.terms import NONE, Term, alike, bare, constant, is_layer, leaves, number
from stayfinite.readers.configs.judges.fault import Fault, seen_at

LINEAR, SOFTMAX, LOG_SOFTMAX, SIGMOID = "linear", "softmax", "log_softmax", "sigmoid"
_LAYERS = lazy_regex(r"(?:Lazy)?(?:Linear|Bilinear|Conv[123]d)")
_OF_CLASSES = frozenset({"CrossEntropyLoss", "cross_entropy"})
_OF_LOGS = frozenset({"NLLLoss", "nll_loss"})
_OF_SHARES = frozenset({"BCELoss", "binary_cross_entropy"})
_OF_LOGITS = frozenset({"BCEWithLogitsLoss", "binary_cross_entropy_with_logits"})
PAIRED = frozenset(
    {"MSELoss", "mse_loss", "L1Loss", "l1_loss", "SmoothL1Loss", "smooth_l1_loss", "HuberLoss", "huber_loss"}
)
_OF_LOG_SHARES = frozenset({"KLDivLoss", "kl_div", "CTCLoss", "ctc_loss"})
POSITIVE = _OF_CLASSES | _OF_LOGS | _OF_SHARES | _OF_LOGITS | PAIRED


def loss_calls(course: Course) -> Iterator[tuple[str, Term, Term, Term]]:
    """``(loss, call, input, target)`` of each loss of torch."""
    for term in course.terms:
        name = loss_name(term, _KNOWN)
        given, target = (
            (term.given(0, "input", "log_probs"), term.given(1, "target", "targets")) if name else (None, None)
        )
        if given is not None and target is not None:
            yield name, term, given, target


def learned_losses(course: Course) -> Iterator[tuple[str, Term, Term, Term]]:
    """The same of those that some backward reaches."""
    return (each for each in loss_calls(course) if id(each[1]) in course.learned)


_KNOWN = POSITIVE | _OF_LOG_SHARES


def loss_name(term: Term, names: Collection[str] = POSITIVE) -> str:
    """The name of torch's loss that a value is the result of, among these."""
    if term.op == "call" and term.last in names and (_of_torch(term) or term.name == "cross_entropy"):
        return term.last
    layer = term.parts[0] if term.op == "applied" else None
    if layer is not None and layer.op == "made" and layer.last in names:
        return layer.last if _of_torch(layer) or layer.last == layer.name else ""
    return ""


def _of_torch(term: Term) -> bool:
    return term.name.startswith(("F.", "torch.", "nn."))


def kind_of(term: Term, depth: int = 0) -> str:
    """What a value is by its last operation: of a linear layer, a softmax, a sigmoid."""
    term = bare(term)
    if depth > 20:
        return ""
    if term.op == "either":
        kinds = {kind_of(each, depth + 1) for each in term.parts}
        return kinds.pop() if len(kinds) == 1 else ""
    name = term.last
    if term.op == "applied":
        layer = term.parts[0]
        if layer.op != "made" or not layer.name.startswith(("nn.", "torch.")):
            return ""
        if layer.last in _SAME_VALUES and len(term.parts) > 1:
            return kind_of(term.parts[1], depth + 1)
        if layer.last == "Sequential":
            layer = _last_layer(layer) or layer
        return LINEAR if _LAYERS.fullmatch(layer.last) else _BY_LAYER.get(layer.last, "")
    if term.op == "method" or (term.op == "call" and term.name.startswith(("F.", "torch."))):
        if name == "log" and term.parts and kind_of(term.parts[0], depth + 1) == SOFTMAX:
            return LOG_SOFTMAX
        return name if name in (SOFTMAX, LOG_SOFTMAX, SIGMOID) else ""
    return ""


_SAME_VALUES = frozenset({"Flatten", "Unflatten", "Identity"})


def _last_layer(stack: Term) -> Term | None:
    """The last layer of a stack that changes values; None where nobody can tell."""
    for part in reversed(stack.parts):
        ends: tuple[Term, ...] = (part.data or ()) if part.op == "starred" else (part,)
        for each in reversed(ends):
            if not is_layer(each) or not each.name.startswith(("nn.", "torch.")) or each.last in STACKS:
                return None
            if each.last not in _SAME_VALUES:
                return each
        if part.op == "starred":
            return None
    return None


_BY_LAYER = {"Softmax": SOFTMAX, "LogSoftmax": LOG_SOFTMAX, "Sigmoid": SIGMOID}


def wrong_inputs(course: Course) -> Iterator[Fault]:
    """Losses that are given something else than they take."""
    told: set[tuple[str, int]] = set()
    for name, call, given, _ in loss_calls(course):
        found = _wrong(name, kind_of(given), _as_written(call) or given.shown)
        if found is not None and (found[0], call.line) not in told:
            told.add((found[0], call.line))
            yield Fault(found[0], found[1], call.line)


GIVEN = "cross entropy is given probabilities"
"""The text of a note."""


def probabilities_given(course: Course) -> Iterator[ast.expr]:
    """What each cross entropy is given that is certainly a softmax."""
    told: set[int] = set()
    for name, call, given, _ in loss_calls(course):
        if name in _OF_CLASSES and id(call.node) not in told and kind_of(given) == SOFTMAX:
            told.add(id(call.node))
            yield next((each.value for each in call.node.keywords if each.arg == "input"), *call.node.args[:1])


def returned_probabilities(course: Course) -> Iterator[Fault]:
    """`return F.softmax(x)` in the forward of the outermost model, beside `CrossEntropyLoss()`."""
    losses = any(each.last in _OF_CLASSES | {"cross_entropy_loss"} for each in course.terms)
    if not losses or _NO_LOGITS.search(course.code):
        return
    owners = [each.node for each in course.defined if each.op == "class"]
    inner = {ast.unparse(each.func) for owner in owners for each in ast.walk(owner) if isinstance(each, ast.Call)}
    for owner in owners:
        forward = next((each for each in owner.body if getattr(each, "name", "") == "forward"), None)
        if forward is None or owner.name in inner or _PART.fullmatch(owner.name):
            continue
        returned = course.returned.get(forward, [])
        if returned and all(_is_softmax(course, each) for each in returned):
            text = "forward() returns a softmax, and cross entropy applies another"
            yield seen_at("softmax-before-cross-entropy", text, returned[0].node)


_NO_LOGITS = lazy_regex(
    r"\bNLL|nll_loss|use_softmax=False|from_probs|soft_label|\.log\(\)|torch\.log\(|log_softmax|Categorical\(|"
    r"policy|actor|reinforce|kl_div|\bmap\(",
    2,
)
_PART = lazy_regex(r"\w*(?:atten|attn|gate|rout|head|pool|memory|select)\w*", 2)


def _is_softmax(course: Course, term: Term) -> bool:
    layer = term.parts[0] if term.op == "applied" else term
    if layer is not term and layer.last == "Sequential" and layer.parts and layer.parts[-1].op == "starred":
        layer = course.ends.get(id(layer.parts[-1].parts[0]), layer)  # nn.Sequential(*layers)
    return (layer is term and term.last == "softmax") or (layer.op == "made" and layer.last == "Softmax")


def doubled_sigmoids(course: Course) -> Iterator[Fault]:
    """A sigmoid whose result goes into a loss that applies one itself."""
    return (each for each in wrong_inputs(course) if each.text.endswith(_DOUBLED))


def shares_for_logs(course: Course) -> Iterator[Fault]:
    """A softmax that goes into `kl_div` or `nll_loss` and is learned from, whoever runs backward."""
    learned = {each[1].line for each in learned_losses(course)}
    return (each for each in wrong_inputs(course) if _SHARES in each.text and each.line in learned)


_SHARES = "takes log-probabilities, and gets probabilities"
_DOUBLED = "goes into a loss that applies a sigmoid"


def _as_written(call: Term) -> str:
    """The first argument of a call, as it stands there: `model(x)` and not the last line of its forward."""
    node = call.node
    return ast.unparse(node.args[0])[:80] if isinstance(node, ast.Call) and node.args else ""


def _wrong(loss: str, kind: str, shown: str) -> tuple[str, str] | None:
    if loss in _OF_CLASSES and kind == SOFTMAX:
        return "softmax-before-cross-entropy", f"{shown} is a softmax, and {loss} applies another one"
    if loss in _OF_LOGITS and kind == SIGMOID:
        return "softmax-before-cross-entropy", f"{shown} {_DOUBLED}"
    if loss in _OF_LOGS | _OF_LOG_SHARES and kind in (LINEAR, SOFTMAX, SIGMOID):
        has = {LINEAR: "logits", SOFTMAX: "probabilities", SIGMOID: "probabilities"}[kind]
        return "probability-loss-on-logits", f"{loss} takes log-probabilities, and gets {has}: {shown}"
    if loss in _OF_SHARES and kind == LINEAR:
        return "probability-loss-on-logits", f"{loss} takes probabilities, and gets logits: {shown}"
    return None


def wrong_axes(course: Course) -> Iterator[Fault]:
    """A softmax over the rows of a batch, whose result goes into a loss of classes."""
    told: set[int] = set()
    shapes = Shapes()
    for name, call, given, target in loss_calls(course):
        soft = bare(given)
        if name not in _OF_CLASSES | _OF_LOGS or kind_of(soft) not in (SOFTMAX, LOG_SOFTMAX):
            continue
        if soft.last == "log":
            soft = bare(soft.parts[0])
        layer = soft.parts[0] if soft.op == "applied" else soft
        axis = constant(layer.given(1 if layer.op == "call" else 0, "dim"))
        inner = soft.parts[1] if soft.op == "applied" else soft.parts[0]
        rows, scores = shapes.of(target), shapes.of(inner)
        many = (
            len(rows) > 0 if rows is not None else len(scores) > 1 if scores is not None else bare(target).op == "batch"
        )
        many = (many and not (rows is None and target.op == "index")) or _is_loaded(target)
        if axis == 0 and many and not isinstance(axis, bool) and call.line not in told and _as_given(given, soft):
            told.add(call.line)
            yield Fault("softmax-axis", f"{layer.shown} runs over the rows of the batch: use dim=1", layer.line)


_MOVES = frozenset({"to", "cuda", "cpu", "long", "view", "flatten", "squeeze"})


def _is_loaded(target: Term) -> bool:
    """Whether a value is a part of what a loader gives in batches."""
    while target.op == "part" or (target.op == "method" and target.name in _MOVES):
        target = target.parts[0]
    loader = target.parts[0] if target.op == "each" and target.parts else None
    size = loader.given(1, "batch_size") if loader is not None and loader.last == "DataLoader" else None
    return size is not None and number(size) != 1 and constant(size) is not None


def _as_given(given: Term, soft: Term) -> bool:
    """Whether the classes are still where the softmax had them."""
    return given is soft or not any(
        each.last in ("t", "transpose", "permute") for each in leaves(given) if each.op == "method"
    )


def crossed_shapes(course: Course) -> Iterator[Fault]:
    """A column against a row: in a loss, in a difference that becomes one, in an accuracy."""
    shapes = Shapes()
    told: set[int] = set()
    for name, call, given, target in loss_calls(course):
        one, other = shapes.of(given), shapes.of(target)
        one = (None, 1) if one is None and shapes.is_column(given) else one
        if name in PAIRED and crosses(one, other) and call.line not in told:
            told.add(call.line)
            text = f"{call.shown} of shapes {_in_words(one)} and {_in_words(other)}: each row meets every target"
            yield Fault("loss-broadcast", text, call.line)
    for term in course.terms:
        if term.line in told or len(term.parts) != 2:
            continue
        one, other = (shapes.of(each) for each in term.parts)
        if not crosses(one, other) or any(_is_stood_up(each) for each in term.parts):
            continue
        met = f"shapes {_in_words(one)} and {_in_words(other)}: each row meets every target"
        if (term.op, term.name) in (("compare", "Eq"), ("method", "eq")) and _is_averaged(course, term):
            told.add(term.line)
            yield Fault("metric-impossible", f"{term.shown} compares {met}", term.line, mild=True)
        elif term.op == "binary" and term.name == "Sub" and _is_squared(course, term):
            told.add(term.line)
            yield Fault("loss-broadcast", f"{term.shown} of {met}", term.line)


def _is_stood_up(term: Term) -> bool:
    """Whether an operand was made a column right there: `x.unsqueeze(1) - x` is a table on purpose."""
    return (term.op in ("method", "call") and term.last in ("unsqueeze", "view", "reshape")) or (
        term.op == "index" and "None" in term.shown
    )


def _in_words(shape: tuple[int | None, ...] | None) -> str:
    return (
        "("
        + ", ".join("N" if each is None else str(each) for each in shape or ())
        + ("," if len(shape or ()) == 1 else "")
        + ")"
    )


def _is_averaged(course: Course, term: Term) -> bool:
    """Whether nothing but the whole table of a comparison is counted."""
    users = _users(course, term)
    while len(users) == 1 and users[0].op == "method" and users[0].name in ("float", "int", "double", "cpu", "long"):
        users = _users(course, users[0])
    return bool(users) and all(
        each.op in ("method", "call") and each.last in ("sum", "mean") and "dim" not in each.keywords
        and len(each.parts) == 1 for each in users
    )  # fmt: skip


def _is_squared(course: Course, term: Term) -> bool:
    """Whether a difference becomes a mean square that is learned from."""
    users = _users(course, term)
    squared = [
        each for each in users if (each.op == "binary" and each.name in ("Pow", "Mult"))
        or (each.op in ("method", "call") and each.last in ("pow", "square", "abs"))
    ]  # fmt: skip
    ends = [user for each in squared for user in _users(course, each)]
    learned = {id(each.term) for each in course.events if each.kind == "backward"}
    whole = [each for each in ends if each.last in ("mean", "sum") and len(each.parts) == 1 and not each.keywords]
    return bool(whole) and len(whole) == len(ends) and any(id(each) in learned for each in whole)


def _users(course: Course, term: Term) -> list[Term]:
    return [each for each in course.terms if any(part is term for part in each.parts)]


_STEEP = frozenset({"sqrt", "log", "log2", "log10", "rsqrt", "reciprocal"})


def singular_places(course: Course) -> Iterator[Fault]:
    """Values without a finite gradient, on the way to a loss that is learned."""
    reached = course.learned
    told: set[tuple[str, int]] = set()
    for term in course.terms:
        if id(term) not in reached:
            continue
        found = _unused_branch(term) or _of_the_same(term) or _of_relu(term)
        if found is not None and is_learned(term) and (found[0], term.line) not in told:
            told.add((found[0], term.line))
            yield Fault(found[0], found[1], term.line)


def _steep(term: Term) -> tuple[str, Term] | None:
    """``(name, argument)`` of an operation that is not finite at 0."""
    if term.op in ("call", "method") and term.last in _STEEP and len(term.parts) == 1:
        return term.last, term.parts[0]
    if term.op == "binary" and term.name == "Pow" and (number(term.parts[1]) or 1.0) < 1.0:
        return "a root", term.parts[0]
    if term.op == "binary" and term.name == "Div":
        return "division", term.parts[1]
    return None


def below_zero(course: Course) -> Iterator[Fault]:
    """Roots and logarithms of `x - x.mean()`, which is negative for some x."""
    for term in course.terms:
        inside = term.parts[0] if term.op in ("call", "method") and term.last in _STEEP and term.parts else None
        if inside is None or (inside.op, inside.name) != ("binary", "Sub"):
            continue
        whole, taken = inside.parts
        if taken.op == "method" and taken.name in _OF_ALL and alike(whole, taken.parts[0]):
            text = f"{term.shown} is NaN: {inside.shown[:60]} is below 0 for some values"
            yield Fault("loss-formula-singularity", text, term.line)


_OF_ALL = frozenset({"mean", "max", "amax", "median"})


def _unused_branch(term: Term) -> tuple[str, str] | None:
    """`torch.where(x > 0, torch.sqrt(x), 0)`: the gradient of the branch not taken is NaN times 0."""
    if term.op != "call" or term.last != "where" or len(term.parts) != 3:
        return None
    condition, chosen, _ = term.parts
    while chosen.op == "binary" and chosen.name == "Mult":  # p * log(p)
        chosen = next((each for each in chosen.parts if (_steep(each) or ("division",))[0] != "division"), NONE)
    steep = _steep(chosen)
    asks = condition.op == "compare" and condition.name in ("Gt", "NotEq") and number(condition.parts[1]) == 0
    if steep is not None and asks and steep[1].op != "call" and alike(condition.parts[0], steep[1]):
        return (
            "where-nan-branch",
            f"{chosen.shown} has a NaN gradient where {condition.shown} is false: NaN * 0 stays NaN",
        )
    return None


def _of_the_same(term: Term) -> tuple[str, str] | None:
    """The root of a distance between a value and its own copy."""
    steep = _steep(term)
    if steep is None or steep[0] == "division":
        return None
    inside = steep[1]
    while inside.op in ("method", "call") and inside.last in ("sum", "mean") and inside.parts:
        inside = inside.parts[0]
    called = inside.op in ("method", "call") and inside.last in ("pow", "square") and inside.parts
    if not called and (inside.op, inside.name) != ("binary", "Pow"):
        return None
    inside = inside.parts[0]
    if inside.op == "binary" and inside.name == "Sub" and alike(_itself(inside.parts[0]), _itself(inside.parts[1])):
        text = f"{term.shown} is the root of 0: both values are the same, and its gradient is not finite"
        return "loss-formula-singularity", text
    return None


def _itself(term: Term) -> Term:
    """A value without copies and factors of 1."""
    for _ in range(10):
        copied = term.op == "method" and term.name in ("clone", "to", "float", "contiguous") and term.parts
        if not copied and not ((term.op, term.name) == ("binary", "Mult") and number(term.parts[1]) == 1.0):
            break
        term = term.parts[0]
    return term


def _of_relu(term: Term) -> tuple[str, str] | None:
    """A logarithm of what ReLU leaves: 0 for half of all values."""
    steep = _steep(term)
    if steep is None:
        return None
    inside = bare(steep[1])
    by_call = inside.op in ("call", "method") and inside.last == "relu"
    by_layer = inside.op == "applied" and inside.parts[0].op == "made" and inside.parts[0].last == "ReLU"
    if (by_call or by_layer) and steep[0] != "a root":
        return "loss-formula-singularity", f"{term.shown}: {steep[0]} of a ReLU's output, which is 0 for many values"
    return None


_ON_PURPOSE = lazy_regex(
    r"adversar|attack|pgd|fgsm|unlearn|forget|\.grad\.sign|reverse_?grad|grad_?reverse|ascent|reward", 2
)


def flipped_signs(course: Course) -> Iterator[Fault]:
    """The only optimizer's only losses, and each of them is made larger."""
    made = optimizers(course)
    lines = {each.line for each in made}
    if len(lines) != 1 or _ON_PURPOSE.search(course.code):
        return
    losses = [each for each in course.events if each.kind == "backward"]
    signs = [sign_of(each.term) for each in losses]
    if not losses or len(set(signs)) != 1 or signs[0] == 0:
        return
    asked = made[0].keywords.get("maximize")
    grows = asked is not None and truth(asked) is True
    if asked is not None and truth(asked) is None:
        return
    if signs[0] > 0 and grows:
        text = "maximize=True makes the loss larger at each step"
        yield Fault("flipped-sign", text, made[0].line)
    elif signs[0] < 0 and not grows:
        text = f"{losses[0].term.shown} is minus the loss: each step makes the loss larger"
        yield Fault("flipped-sign", text, losses[0].node.lineno)


def sign_of(term: Term, depth: int = 0) -> int:
    """1 for a loss that is never negative, -1 for minus such a loss, 0 where that is not certain."""
    if depth > 20:
        return 0
    if loss_name(term) or _is_square(term):
        return 1
    if term.op == "unary" and term.name == "USub":
        return -sign_of(term.parts[0], depth + 1)
    if term.op == "binary" and term.name in ("Mult", "Div"):
        left, right = term.parts
        for value, other in ((left, right), (right, left)):
            factor = number(other)
            if factor and (term.name == "Mult" or other is right):
                return sign_of(value, depth + 1) * (1 if factor > 0 else -1)
        return sign_of(left, depth + 1) if term.name == "Div" and right.last == "len" else 0
    if term.op == "binary" and term.name == "Add":
        found = {sign_of(each, depth + 1) for each in term.parts if number(each) is None}
        return found.pop() if len(found) == 1 else 0
    if term.op == "method" and term.name == "scale" and len(term.parts) > 1:
        return sign_of(term.parts[1], depth + 1)
    if term.op == "method" and term.name in ("mean", "sum") and term.parts:
        return sign_of(term.parts[0], depth + 1)
    return 0


def _is_square(term: Term) -> bool:
    """`((a - b) ** 2).mean()`."""
    while term.op in ("method", "call") and term.last in ("mean", "sum") and term.parts:
        term = term.parts[0]
    if term.op == "binary" and term.name == "Pow":
        base, power = term.parts
    elif term.op in ("method", "call") and term.last in ("pow", "square", "abs") and term.parts:
        base = term.parts[0]
        power = term.parts[1] if term.last == "pow" and len(term.parts) > 1 else Term("const", data=2)
    else:
        return False
    return number(power) == 2 and base.op == "binary" and base.name == "Sub"
