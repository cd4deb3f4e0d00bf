"""Inputs and targets that no longer belong together: permuted apart, or loaded by two shuffled loaders."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.picking import truth
from stayfinite.readers.configs.course.terms import Term, leaves
from stayfinite.readers.configs.judges.losses import loss_calls
from stayfinite.readers.configs.loops import LoopFault

_SHUFFLES = frozenset({"randperm", "permutation"})


def parted_pairs(course: Course) -> Iterator[LoopFault]:
    """Losses whose input and target come from rows in two orders."""
    reached = course.learned
    for _, call, given, target in loss_calls(course):
        if id(call) not in reached:
            continue
        inputs, targets = _batches(given), _batches(target)
        one, other = _orders(inputs), _orders(targets)
        common = one.keys() & other.keys()
        one, other = ({key: each for key, each in side.items() if key not in common} for side in (one, other))
        if one and other and not _same_seeds(course, [*one.values(), *other.values()]):
            line = max(each.line for each in (*one.values(), *other.values()))
            text = "inputs and labels are permuted apart: each row gets another's label"
            yield LoopFault("labels-shuffled", text, line)
            return
        lone = _one_sided(course, inputs, targets, one, other)
        if lone is not None:
            text = f"only one of inputs and labels is permuted ({lone.shown}): each row gets another's label"
            yield LoopFault("labels-shuffled", text, lone.line)
            return
        loaders = [
            {id(each.parts[1]): each.parts[1] for each in side if each.name == "rows"} for side in (inputs, targets)
        ]
        first, second = (list(each.values()) for each in loaders)
        if len(first) != 1 or len(second) != 1 or first[0] is second[0] or len(inputs) + len(targets) != 2:
            continue
        if all(map(_shuffles, (*first, *second))):
            text = "inputs and labels come from two loaders that shuffle apart: each row gets another's label"
            yield LoopFault("labels-shuffled", text, first[0].line)
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
