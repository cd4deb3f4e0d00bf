"""The rows that are learned from: broken, parted from their labels, repeated, sorted, or scaled in another way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.models import trained
from stayfinite.readers.configs.course.picking import truth
from stayfinite.readers.configs.course.terms import (
    VALUES_KEPT,
    Term,
    alike,
    bare,
    constant,
    is_all,
    is_random,
    leaves,
    number,
    stripped,
)
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.losses import learned_losses, loss_calls

_CLEANED = lazy_regex(r"nan_to_num|isnan|isfinite|isinf|nanmean|fillna|dropna|nan_?mask|np\.ma\b|(\b\w+) [!=]= \1\b")


def not_finite(course: Course) -> Iterator[Fault]:
    """`x[3] = float("nan")` in data that are learned from, and nothing takes it out again."""
    if _CLEANED.search(course.code):
        return
    reached = course.learned
    given = [one for each in course.events if each.kind == "forward" for one in each.given]
    given += [target for _, _, _, target in loss_calls(course)]
    plain = {id(part) for each in given for part in _rows(each)}
    for term in course.terms:
        if term.op == "set" and id(term) in reached and not term.passes:
            word = _word(term.parts[2])
            # Infinity keeps a value out of a minimum, too.
            if word and _is_data(term.parts[0]) and (word == "NaN" or id(term) in plain):
                yield Fault("bad-data-row", f"{term.shown} is set to {word}, and the training reads it", term.line)
                return


def _rows(term: Term) -> Iterator[Term]:
    """A value, and what it consists of: the rows that it was picked from, before they were moved or written to."""
    for _ in range(40):
        yield term
        moved = term.op == "method" and term.name in _MOVED
        made = term.op == "call" and term.last in _MADE
        scaled = term.op == "binary" and number(term.parts[1]) is not None
        if not (moved or made or scaled or term.op in ("batch", "index", "set", "row")) or not term.parts:
            return
        term = term.parts[0]


_MOVED = VALUES_KEPT | {"unfold", "astype"}
_MADE = frozenset({"tensor", "from_numpy", "as_tensor", "FloatTensor", "array", "stack", "cat", "concatenate"})


def _word(value: Term) -> str:
    """`nan` or `inf`, where a value is one of them; minus infinity masks on purpose."""
    if value.op == "call" and value.name == "float" and value.parts:
        text = str(constant(value.parts[0])).lower()
        return {"nan": "NaN", "inf": "inf", "infinity": "inf"}.get(text, "")
    return {"np.nan": "NaN", "torch.nan": "NaN", "math.nan": "NaN", "np.inf": "inf", "torch.inf": "inf",
            "math.inf": "inf"}.get(value.name if value.op == "library" else "", "")  # fmt: skip


def _is_data(term: Term) -> bool:
    """Whether values are made or loaded: a matrix of zeros or of distances holds infinity on purpose."""
    while term.op == "set":
        term = term.parts[0]
    return not (term.op == "call" and term.last in ("zeros", "ones", "full", "empty", "eye", "zeros_like", "full_like"))


def axes_taken_for_others(course: Course) -> Iterator[Fault]:
    """A recurrent layer that takes the batch for the time, where the last step is read as if it did not."""
    reached = course.learned
    for term in course.terms:
        if term.op != "index" or id(term) not in reached or not _last_step(term.parts[1]):
            continue
        output = term.parts[0]
        call = output.parts[0] if output.op == "part" and output.data == 0 else None
        layer = call.parts[0] if call is not None and call.op == "applied" else None
        if call is None or layer is None or layer.op != "made" or layer.last not in ("LSTM", "GRU", "RNN"):
            continue
        if "batch_first" not in layer.keywords and len(layer.parts) < 5 and _is_batch(call.parts[1]):
            text = f"{layer.shown} without batch_first takes the rows for time steps: rows of a batch see each other"
            yield Fault("samples-leak", text, layer.line)
            return


def _last_step(key: Term) -> bool:
    """`[:, -1]`."""
    return key.op == "row" and len(key.parts) > 1 and is_all(key.parts[0]) and constant(key.parts[1]) == -1


def _is_batch(term: Term) -> bool:
    """Whether the first axis of a value is that of the rows of a loader."""
    for _ in range(20):
        if term.op == "batch":
            return True
        if term.op == "index" and term.parts[1].op in ("index", "call") and term.passes:
            return any(each.last in {"randperm", "permutation"} for each in leaves(term.parts[1]))
        if (
            term.op == "applied"
            and term.parts[0].op == "made"
            and term.parts[0].last in ("Embedding", "Dropout", "Linear")
        ):
            term = term.parts[1]
        elif term.op == "method" and term.name in ("to", "float", "cuda") and term.parts:
            term = term.parts[0]
        else:
            return False
    return False


_SHUFFLES = frozenset({"randperm", "permutation"})


def parted_pairs(course: Course) -> Iterator[Fault]:
    """Losses whose input and target come from rows in two orders."""
    for _, _, given, target in learned_losses(course):
        inputs, targets = _batches(given), _batches(target)
        one, other = _orders(inputs), _orders(targets)
        common = one.keys() & other.keys()
        one, other = ({key: each for key, each in side.items() if key not in common} for side in (one, other))
        if one and other and not _same_seeds(course, [*one.values(), *other.values()]):
            line = max(each.line for each in (*one.values(), *other.values()))
            text = "inputs and labels are permuted apart: each row gets another's label"
            yield Fault("labels-shuffled", text, line)
            return
        lone = _one_sided(course, inputs, targets, one, other)
        if lone is not None:
            text = f"only one of inputs and labels is permuted ({lone.shown}): each row gets another's label"
            yield Fault("labels-shuffled", text, lone.line)
            return
        loaders = [
            {id(each.parts[1]): each.parts[1] for each in side if each.name == "rows"} for side in (inputs, targets)
        ]
        first, second = (list(each.values()) for each in loaders)
        if len(first) != 1 or len(second) != 1 or first[0] is second[0] or len(inputs) + len(targets) != 2:
            continue
        if all(map(_shuffles, (*first, *second))):
            text = "inputs and labels come from two loaders that shuffle apart: each row gets another's label"
            yield Fault("labels-shuffled", text, first[0].line)
            return


def _one_sided(
    course: Course, inputs: list[Term], targets: list[Term], one: dict[int, Term], other: dict[int, Term]
) -> Term | None:
    """The permutation of one side, where both sides were computed from the same rows."""
    if bool(one) == bool(other) or len(inputs) != 1 or len(targets) != 1 or _ON_PURPOSE.search(course.code):
        return None
    moved, still = (inputs[0], targets[0]) if one else (targets[0], inputs[0])
    if moved.op == "batch" and (still.op != "batch" or moved.parts[1] is not still.parts[1]):
        return None
    order = next(iter((one or other).values()))
    rows = _before(moved.parts[0] if moved.op == "batch" else moved, order)
    if rows is None:
        return None
    kept = still.parts[0] if still.op == "batch" else still
    data = {id(each) for each in leaves(kept) if each.op in _COMPUTED and each.passes == ()}
    return order if any(id(each) in data for each in leaves(rows) if each.op in _COMPUTED) else None


_COMPUTED = frozenset({"call", "binary", "method"})


def _before(term: Term, order: Term) -> Term | None:
    """The rows that a permutation moved, where nothing but moves and picked rows lie between."""
    for _ in range(12):
        if term is order or (term.op == "index" and term.parts[1] is order):
            return term.parts[0]
        moved = term.op == "method" and term.name in ("float", "long", "to", "clone", "view", "unsqueeze", "squeeze")
        made = term.op == "call" and term.last in ("tensor", "from_numpy", "as_tensor", "LongTensor", "FloatTensor")
        if not (moved or made or term.op == "index") or not term.parts:
            return None
        term = term.parts[0]
    return None


_ON_PURPOSE = lazy_regex(r"random_?label|memori[sz]|permutation_?test|null_?model|label_?noise|noisy|importance", 2)


def _batches(term: Term) -> list[Term]:
    """The batches and rows that a value was computed from."""
    found = [each for each in leaves(term) if each.op == "batch"]
    return found or [term]


def _orders(batches: list[Term]) -> dict[int, Term]:
    """The permutations of the rows of these values, where each was permuted once, in the same way."""
    found: dict[int, Term] = {}
    for batch in batches:
        rows = batch.parts[0] if batch.op == "batch" else batch
        orders = _permutations(rows)
        if orders is None:
            return {}
        found.update(orders)
    return found


def _permutations(term: Term) -> dict[int, Term] | None:
    """The permutations on the one way from a value to its rows; None where there are several ways."""
    found: dict[int, Term] = {}
    for _ in range(60):
        if term.op == "shuffled":
            found[id(term)] = term
            term = term.parts[0]
        elif term.op == "index":
            key = term.parts[1]
            if key.op in ("call", "method") and key.last in _SHUFFLES:
                found[id(key)] = key
            elif key.op not in ("slice", "const"):
                order = [each for each in leaves(key) if each.op in ("call", "method") and each.last in _SHUFFLES]
                if len(order) == 1 and key.op == "index":  # perm[i:i + 32]
                    found[id(order[0])] = order[0]
            term = term.parts[0]
        elif (
            term.op == "call"
            and term.last == "permutation"
            and term.parts
            and term.parts[0].op not in ("const", "call")
        ):
            found[id(term)] = term  # np.random.permutation(x)
            term = term.parts[0]
        elif term.op == "either":
            return None
        elif term.op in ("method", "binary", "applied", "set") or (term.op == "call" and term.last in _PASSES):
            places = term.parts[1:] if term.op == "applied" else term.parts
            ways = [each for each in places if _permutations_below(each)]
            if not ways:
                return found
            if len(ways) > 1:
                return None
            term = ways[0]
        else:
            return found
    return None


_PASSES = frozenset(
    {"from_numpy", "tensor", "as_tensor", "FloatTensor", "LongTensor", "array", "relu", "cat", "flatten"}
)


def _permutations_below(term: Term) -> bool:
    return any(
        (each.op in ("call", "method") and each.last in _SHUFFLES) or each.op == "shuffled" for each in leaves(term)
    )


def _same_seeds(course: Course, orders: list[Term]) -> bool:
    """Whether one seed may make several permutations the same."""
    if any("generator" in each.keywords or "random_state" in each.keywords for each in orders):
        return True
    if len({id(each.parts[0]) for each in orders if each.op == "method"}) > 1:
        return True  # two generators
    first, last = min(each.line for each in orders), max(each.line for each in orders)
    seeds = [getattr(each.node, "lineno", 0) for each in course.events if each.kind == "seed"]
    return any(first < line <= last for line in seeds)


def _shuffles(loader: Term) -> bool:
    shuffle = loader.given(2, "shuffle")
    return shuffle is not None and truth(shuffle) is True and "generator" not in loader.keywords


def _keeps_order(loader: Term) -> bool:
    shuffle = loader.given(2, "shuffle")
    return (shuffle is None or truth(shuffle) is False) and not {"sampler", "batch_sampler"} & loader.keywords.keys()


def same_batches(course: Course) -> Iterator[Fault]:
    """The first batch of a loader in its given order, or one slice, at each step."""
    for _, _, given, target in learned_losses(course):
        for loader in _restarted(target):
            text = "next(iter(loader)) without shuffle gives the same first batch at each step"
            yield Fault("duplicate-rows", text, loader)
            return
        rows, labels = _one_slice(course, given), _one_slice(course, stripped(target, _CASTS))
        if rows is not None and labels is not None and not _others(target):
            yield Fault("duplicate-rows", f"{labels.shown} is the same rows at each step of the loop", labels.line)
            return


def _restarted(target: Term) -> Iterator[int]:
    """Lines of `next(iter(loader))` inside of a loop of steps, where the loader keeps its order.

    What a dataset of the script's own gives may be random.
    """
    for each in leaves(target):
        if (
            each.op != "batch"
            or each.name == "items"
            or not isinstance(each.node, ast.Call)
            or ast.unparse(each.node.func) != "next"
        ):
            continue
        inner = each.node.args[0]
        fresh = isinstance(inner, ast.Call) and ast.unparse(inner.func) == "iter"
        loader = each.parts[1]
        if fresh and _keeps_order(loader) and each.passes and len(each.passes) > len(loader.passes):
            yield each.line


_CASTS = frozenset({"to", "float", "long", "cuda", "cpu", "view", "squeeze", "unsqueeze"})


def _one_slice(course: Course, term: Term) -> Term | None:
    """A slice with numbers for its ends, inside a loop over `range(a, b, step)` that no value depends on."""
    for each in leaves(term):
        key = each.parts[1] if each.op == "index" and len(each.parts) > 1 else None
        if key is None or key.op != "slice" or not each.passes or constant(key.parts[2]) is not None:
            continue
        start, stop = number(key.parts[0]) or 0.0, number(key.parts[1])
        loop = course.loops.get(each.passes[-1][0])
        if stop is None or stop <= start or not isinstance(loop, ast.For) or not _counts_rows(loop):
            continue
        names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        used = {node.id for one in loop.body for node in ast.walk(one) if isinstance(node, ast.Name)}
        if not names & used:
            return each
    return None


def _counts_rows(loop: ast.For) -> bool:
    """`for i in range(0, 512, 64)`."""
    return isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range" and len(loop.iter.args) == 3


def _others(target: Term) -> bool:
    return any(each.op in ("each", "batch") for each in leaves(target))


_OF_CLASSES = frozenset({"CrossEntropyLoss", "cross_entropy", "NLLLoss", "nll_loss", "BCELoss", "BCEWithLogitsLoss"})


def sorted_classes(course: Course) -> Iterator[Fault]:
    """A loader that keeps the order of rows which are sorted by class."""
    for name, _, _, target in learned_losses(course):
        batch = next((each for each in leaves(target) if each.op == "batch"), None)
        if batch is None or name not in _OF_CLASSES:
            continue
        loader = batch.parts[1]
        plain = "collate_fn" not in loader.keywords and loader.parts[3:] == () and _keeps_order(loader)
        dataset = loader.given(0, "dataset")
        direct = dataset is not None and dataset.op in ("made", "instance") and dataset.last != "Subset"
        size = loader.given(1, "batch_size")
        few = size is None or (number(size) or 1e9) < 1_000
        if plain and direct and few and is_sorted(batch.parts[0]) and _looped(batch):
            text = "the rows are sorted by class, and the loader does not shuffle: set shuffle=True"
            yield Fault("unshuffled", text, loader.line)
            return


def _looped(batch: Term) -> bool:
    return not (isinstance(batch.node, ast.Call) and ast.unparse(batch.node.func) == "next")


_MOVES = frozenset({"long", "float", "to", "clone", "int", "astype", "unsqueeze", "view"})
_MAKES = frozenset({"tensor", "from_numpy", "as_tensor", "LongTensor", "FloatTensor"})


def is_sorted(term: Term) -> bool:
    """Whether labels come class by class: `arange(4).repeat_interleave(160)`, `cat([zeros(n), ones(n)])`."""
    term = stripped(term, _MOVES, _MAKES)
    if term.op in ("method", "call") and term.last in ("repeat_interleave", "repeat"):
        counted = term.parts[0]
        np_repeat = term.name == "np.repeat" or term.last == "repeat_interleave"
        return np_repeat and counted.op == "call" and counted.last == "arange"
    if term.op == "call" and term.last in ("cat", "concatenate", "hstack", "concat") and term.parts:
        listed = term.parts[0]
        if listed.op == "row" and listed.data != "grown" and len(listed.parts) > 1:
            values = [_filled(each) for each in listed.parts]
            return (
                None not in values and values == sorted(values, key=lambda each: each or 0.0) and len(set(values)) > 1
            )
    return False


def _filled(term: Term) -> float | None:
    """The number that all elements are."""
    term = bare(term)
    if term.op == "call" and term.last in ("zeros", "ones"):
        return float(term.last == "ones")
    return number(term.given(1, "fill_value")) if term.op == "call" and term.last == "full" else None


Step = tuple[str, float | str]


class Scaled(NamedTuple):
    """A model's input: the operations on its values, and where they start."""

    steps: tuple[Step, ...]
    root: Term
    last: Term
    """The last operation."""
    way: tuple[Term, ...]
    """The values between."""


def split_scales(course: Course) -> Iterator[Fault]:
    """Inputs of training and of validation that come from the same place and differ in their scale."""
    reached = course.learned
    changed = {id(each.term) for each in course.events if each.kind == "in place"}
    for model in trained(course):
        calls = [each for each in course.events if each.kind == "forward" and each.term is model and each.given]
        learned = [scaled(each.given[0]) for each in calls if each.learns and id(each.result) in reached]
        measured = [scaled(each.given[0]) for each in calls if not each.learns and id(each.result) not in reached]
        if not learned or not measured or None in learned or None in measured:
            continue
        kinds = {each.steps for each in learned if each}
        others = {each.steps for each in measured if each}
        one, other = learned[0], measured[0]
        if any(id(part) in changed for each in (*learned, *measured) if each for part in each.way):
            continue
        if one is None or other is None or len(kinds) != 1 or kinds & others or len(others) != 1:
            continue
        if all(each is not None and same_place(each.root, one.root) for each in (*learned, *measured)):
            told = other if len(other.steps) > len(one.steps) else one
            text = f"training inputs: {_in_words(one.steps)}; validation inputs: {_in_words(other.steps)}"
            yield Fault("splits-scaled-differently", text, told.last.line or other.root.line)


def _in_words(steps: tuple[Step, ...]) -> str:
    words = [
        f"{_WORDS.get(name, name)} {value if isinstance(value, str) else f'{value:g}'}".strip() for name, value in steps
    ]
    return "as they are" if not words else ", ".join(reversed(words))


_WORDS = {"Add": "plus", "Sub": "minus", "Mult": "times", "Div": "divided by"}


def same_place(one: Term, other: Term) -> bool:
    """Whether two values are the same, or come from one place of the script."""
    return one is other or (one.node is not None and one.node is other.node) or alike(one, other)


_STATISTICS = frozenset({"mean", "std", "var", "min", "max", "amax", "amin", "median", "sqrt", "tensor", "array",
                         "view", "clamp", "reshape", "clip", "quantile"})  # fmt: skip
_FUNCTIONS = frozenset({"log", "log1p", "sqrt", "tanh", "sigmoid", "normalize"})


def scaled(term: Term) -> Scaled | None:
    """How a value was scaled; None where there is more than one way."""
    steps: list[Step] = []
    way: list[Term] = []
    last = term
    for _ in range(80):
        before = len(steps)
        way.append(term)
        following = _step_before(term, steps)
        if following is None:
            return Scaled(tuple(steps), term, last, tuple(way))
        if following is _UNCLEAR:
            return None
        if len(steps) > before and before == 0:
            last = term
        term = following
    return None


_UNCLEAR = Term("unclear")


def _step_before(term: Term, steps: list[Step]) -> Term | None:
    """What a value was computed from; None at its root."""
    if term.op == "batch":
        return term.parts[0]
    if term.op == "either":
        return _UNCLEAR
    if term.op == "index":
        owner, key = term.parts
        return _from_set(owner, key) if owner.op == "set" else owner
    if term.op == "set":
        return term.parts[0] if term.parts[2].op in ("const", "call", "library") else _column(term, steps)
    if term.op == "part" and term.parts[0].op == "call" and term.parts[0].last == "train_test_split":
        place = term.data // 2
        return term.parts[0].parts[place] if place < len(term.parts[0].parts) else None
    if term.op == "method":
        return _method(term, steps)
    if term.op == "call" and term.parts and (term.last in _MADE_OF or term.last in _FUNCTIONS):
        if term.last in _FUNCTIONS:
            steps.append((term.last, ""))
        return term.parts[0]
    if term.op == "applied" and term.parts[0].op == "made" and len(term.parts) > 1 and "ransform" in term.parts[0].name:
        names = [each.last for each in leaves(term.parts[0]) if each.op == "made"]
        steps += [("normalized", "")] * ("Normalize" in names) + [("read by ToTensor", "")] * ("ToTensor" in names)
        return term.parts[1]
    if term.op == "binary" and term.name in _WORDS:
        return _binary(term, steps)
    return None


_MADE_OF = frozenset({"from_numpy", "tensor", "as_tensor", "FloatTensor", "array", "asarray", "stack"})


def _method(term: Term, steps: list[Step]) -> Term | None:
    if term.name in ("fit_transform", "transform") and len(term.parts) > 1:
        steps.append((f"scaled by {term.parts[0].last or 'a scaler'}", ""))
        return term.parts[1]
    if term.name in _FUNCTIONS or term.name in ("div_", "sub_", "mul_", "add_"):
        steps.append((term.name, ""))
        return term.parts[0]
    if term.name in ("div", "sub", "mul", "add") and len(term.parts) > 1:
        return _binary(
            Term("binary", {"div": "Div", "sub": "Sub", "mul": "Mult", "add": "Add"}[term.name], term.parts), steps
        )
    return term.parts[0] if term.name in VALUES_KEPT or term.name == "astype" else None


def _binary(term: Term, steps: list[Step]) -> Term | None:
    left, right = term.parts
    for data, other in ((left, right), (right, left)):
        if data is right and term.name in ("Sub", "Div"):
            break
        if any(is_random(each) for each in leaves(other)) and not _is_statistic(other):
            return data  # noise
        value = number(other)
        if value is not None or _is_statistic(other):
            if value is None or (value != (1.0 if term.name in ("Mult", "Div") else 0.0)):
                steps.append((term.name, "a statistic" if value is None else value))
            return data
    return None


def _is_statistic(term: Term) -> bool:
    if term.op == "binary":
        return all(_is_statistic(each) or number(each) is not None for each in term.parts)
    if term.op in ("method", "call", "part", "index") and term.parts:
        return (term.last in _STATISTICS and term.op in ("method", "call")) or _is_statistic(term.parts[0])
    return False


def _column(term: Term, steps: list[Step]) -> Term:
    """`x[:, 2] = x[:, 2] / 100`: one column of all rows."""
    old, key, value = term.parts
    whole = key.op == "row" and key.parts and is_all(key.parts[0])
    inner = scaled(value) if whole else None
    if inner is None or not inner.steps:
        return _UNCLEAR if number(value) is None and value.op != "call" else old
    steps.append((f"column {key.parts[-1].shown} {_in_words(inner.steps)}", ""))
    return old


def _from_set(owner: Term, key: Term) -> Term:
    """`x[:8]` after `x[:8] = y` is y, and `x[8:]` is still the x before."""
    old, written, value = owner.parts
    if alike(key, written):
        return value
    if key.op == written.op == "slice":
        ends = [
            (constant(a), constant(b)) for a, b in ((key.parts[1], written.parts[0]), (written.parts[1], key.parts[0]))
        ]
        if any(isinstance(one, int) and one == other for one, other in ends):
            return old if old.op != "set" else _UNCLEAR
    return _UNCLEAR
