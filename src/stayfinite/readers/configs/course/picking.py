"""Parts of values: what a library's names are short for, items, attributes, and what a condition certainly is."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Any

from stayfinite.readers.configs.course.terms import Term, constant, is_layer, number
from stayfinite.readers.configs.libraries import trains_nothing

if TYPE_CHECKING:
    from stayfinite.readers.configs.course.following import Course

FOREIGN = "foreign"
"""What a `library` term holds whose code could do anything."""
_SHORT = {"nn.functional": "F", "numpy": "np", "torch.nn.functional": "F", "torch.nn": "nn", "torch.functional": "F"}
_THROUGH = frozenset({"attribute", "method", "index", "part", "each", "applied", "entered", "starred", "batch"})


def short_name(name: str) -> str:
    """A library's name as people write it, whatever it was imported as."""
    for long, short in _SHORT.items():
        if name == long or name.startswith(f"{long}."):
            return short + name.removeprefix(long)
    return name


def import_of(name: str, node: ast.AST, module: str) -> Term:
    """What an import binds."""
    return Term("library", short_name(name), node=node, data=None if trains_nothing(module) else FOREIGN)


def global_name(name: str, node: ast.AST) -> Term:
    """A name that the script does not define."""
    known = name.startswith("__") or hasattr(builtins, name)
    return Term("library", name, node=node, data=None if known else FOREIGN)


def is_foreign(term: Term, results: set[int]) -> bool:
    """Whether a value comes from code that nobody sees; ``results`` are those of its calls."""
    for _ in range(40):
        if id(term) in results:
            return True
        if term.op == "either":
            return any(
                each.op in ("instance", "function") or is_layer(each) or each.data is FOREIGN for each in term.parts
            )
        if term.op == "attribute" and term.parts and term.parts[0].op == "instance":
            return True
        if term.op not in _THROUGH or not term.parts:
            break
        term = term.parts[0]
    return term.op in ("unknown", "super") or (term.op == "library" and term.data is FOREIGN)


MODULES = frozenset({"instance", "made"})
_WRAPS = frozenset({"tqdm", "trange", "iter", "list", "tuple", "sorted", "track", "deepcopy", "tenumerate"})


def truth(term: Term) -> bool | None:
    """Whether a condition holds, where that is certain."""
    if term.op == "const":
        return bool(term.data)
    if term.op in ("function", "class") or (term.op == "made" and "ransform" in term.name):
        return True
    if term.op == "compare" and len(term.parts) == 2:
        return _compared(term.name, *term.parts)
    if term.op == "unary" and term.name == "Not":
        inner = truth(term.parts[0])
        return None if inner is None else not inner
    if term.op == "bool":
        found = [truth(each) for each in term.parts]
        decides = term.name == "Or"
        return decides if decides in found else None if None in found else not decides
    return None


def _compared(operator: str, left: Term, right: Term) -> bool | None:
    if operator in ("Is", "IsNot", "Eq", "NotEq"):
        same: bool | None = True if {left.name, constant(left), right.name, constant(right)} >= _MAIN else None
        if left.op == right.op == "const":
            same = left.data == right.data
        elif (left.op == "const" and left.data is None and right.op in _SOMETHING) or (
            right.op == "const" and right.data is None and left.op in _SOMETHING
        ):
            same = False
        return None if same is None else same == (operator in ("Is", "Eq"))
    one, other = number(left), number(right)
    listed = right.op == "row" and right.data != "grown" and all(each.op == "const" for each in right.parts)
    if operator in ("In", "NotIn") and left.op == "const" and listed:
        return (left.data in [each.data for each in right.parts]) == (operator == "In")
    if one is None or other is None:
        return None
    return {"Lt": one < other, "LtE": one <= other, "Gt": one > other, "GtE": one >= other}.get(operator)


_MAIN = {"__name__", "__main__"}
_SOMETHING = frozenset({"made", "instance", "applied", "binary", "row", "dict", "function", "batch"})


def item_of(course: Course, over: Term, node: Any) -> Term:
    """An item of an iterable, as a loop sees it."""
    inner = over.parts[0] if over.parts else over
    if over.op == "call" and over.last in _WRAPS and over.parts:
        return item_of(course, inner, node)
    if over.op == "call" and over.last == "enumerate" and over.parts:
        count = course.term("each", "count", (over,), node)
        return course.term("row", parts=(count, item_of(course, inner, node)), node=node)
    if over.op == "call" and over.last == "zip" and over.parts:
        return course.term("row", parts=tuple(item_of(course, each, node) for each in over.parts), node=node)
    if over.op == "row" and over.parts and over.data != "grown":
        return course.either(list(over.parts))
    if over.op == "made" and over.last == "DataLoader":
        return batch_of(course, dataset_of(over), over, node)
    if over.op == "yielded" and over.parts:
        return course.either(list(over.parts))
    if over.op == "instance":
        made = method_result(course, over, "__iter__", [])
        if made is not None:
            return item_of(course, made, node)
    return course.term("each", parts=(over,), node=node)


def items_of(course: Course, over: Term, node: Any) -> list[Term]:
    """The items that a loop goes over one by one: short lists, and those of models."""
    inner = over.parts[0] if over.parts else over
    if over.op == "row" and over.data != "grown" and len(over.parts) <= 4:
        return list(over.parts)
    if over.op == "call" and over.last == "enumerate" and over.parts:
        count = course.term("each", "count", (over,), node)
        return [course.term("row", parts=(count, each), node=node) for each in items_of(course, inner, node)]
    if over.op == "call" and over.last in ("list", "tuple", "reversed") and over.parts:
        return items_of(course, inner, node)
    found = parts_in(over)
    return found if 0 < len(found) <= 64 and all(each.op == "instance" or is_layer(each) for each in found) else []


def parts_in(listed: Term) -> list[Term]:
    """What a list, or a list of layers, consists of."""
    if listed.op == "starred":
        return parts_in(listed.parts[0])
    if listed.op == "made" and listed.last in STACKS:
        first = listed.parts[0] if len(listed.parts) == 1 and listed.parts[0].op in ("row", "dict", "starred") else None
        held = parts_in(first) if first is not None else list(listed.parts)
        return [*held, *listed.attributes.values()]
    return [*listed.parts, *listed.attributes.values()] if listed.op in ("row", "dict") else []


def dataset_of(loader: Term) -> Term | None:
    """What a loader loads from."""
    return loader.given(0, "dataset")


def batch_of(course: Course, dataset: Term | None, loader: Term, node: Any) -> Term:
    """A batch of a loader: the rows of each tensor."""
    whole = dataset
    for _ in range(8):
        if whole is None:
            break
        if whole.op in ("part", "index"):
            whole = whole.parts[0]
        elif whole.op in ("call", "made") and whole.last in ("random_split", "Subset"):
            whole = whole.given(0, "dataset")
    if whole is not None and whole.op == "made" and whole.last == "TensorDataset":
        rows = [course.term("batch", parts=(each, loader), node=node) for each in whole.parts]
        return course.term("row", parts=tuple(rows), node=node)
    if whole is not None and whole.op == "instance" and loader.given(-1, "collate_fn") is None:
        if "item" not in whole.attributes:
            at = course.term("each", "row", (whole,), node)
            whole.attributes["item"] = method_result(course, whole, "__getitem__", [at]) or course.term("unknown")
        return _stacked(course, whole.attributes["item"], loader, node)
    if whole is not None and whole.op == "made" and (transform := _transform_of(whole)) is not None:
        image = course.term("applied", transform.name, (transform, course.term("source", whole.name)), node)
        both = (course.term("batch", "items", (image, loader), node), course.term("part", parts=(loader,), node=node))
        return course.term("row", parts=both, node=node)
    if whole is not None and whole.op not in ("unknown", "either", "made", "instance") and loader.op == "made":
        return course.term("batch", "rows", parts=(whole, loader), node=node)
    return course.term("each", parts=(loader,), node=node)


def _transform_of(dataset: Term) -> Term | None:
    """The transforms that a dataset of a library applies to its images."""
    if ".datasets." not in f".{dataset.name}" or dataset.last == "FakeData":
        return None
    found = dataset.given(1 if dataset.last == "ImageFolder" else -1, "transform")
    return found if found is not None and found.op == "made" else None


def _stacked(course: Course, item: Term, loader: Term, node: Any) -> Term:
    """One item of a dataset as a batch of them."""
    if item.op == "row":
        return course.term("row", parts=tuple(_stacked(course, each, loader, node) for each in item.parts), node=node)
    if item.op == "dict":
        made = course.term("dict", node=node, data=item.data)
        made.attributes = {key: _stacked(course, each, loader, node) for key, each in item.attributes.items()}
        return made
    return course.term("batch", "items", parts=(item, loader), node=node)


def parts_of(course: Course, value: Term, count: int) -> list[Term]:
    """The values that `a, b = value` gives."""
    if value.op == "row" and len(value.parts) == count and value.data != "grown":
        return list(value.parts)
    if value.op == "either" and all(each.op == "row" and len(each.parts) == count for each in value.parts):
        return [course.either([each.parts[place] for each in value.parts]) for place in range(count)]
    return [course.term("part", parts=(value,), data=place, node=value.node) for place in range(count)]


def entry_of(course: Course, owner: Term, key: Term, node: Any) -> Term:
    """`owner[key]`."""
    at = constant(key)
    if owner.op == "dict" and at in owner.attributes and owner.data != "grown":
        return owner.attributes[at]
    if owner.op == "row" and isinstance(at, int) and -len(owner.parts) <= at < len(owner.parts):
        return owner.parts[at]
    layers = layers_of(owner)
    if layers and isinstance(at, int) and -len(layers) <= at < len(layers):
        return layers[at]
    return course.term("index", parts=(owner, key), node=node)


STACKS = frozenset({"Sequential", "ModuleList", "ModuleDict"})


def layers_of(model: Term) -> tuple[Term, ...]:
    """The layers of a stack or a list of layers, where all are known."""
    if model.op != "made" or model.last not in ("Sequential", "ModuleList") or model.data == "grown":
        return ()
    listed = model.parts[0].parts if len(model.parts) == 1 and model.parts[0].op == "row" else model.parts
    return () if any(each.op in ("starred", "unknown") for each in listed) else listed


def attribute_of(course: Course, owner: Term, name: str, node: Any) -> Term:
    """`owner.name`."""
    if owner.op == "library" and name not in owner.attributes:
        return course.term("library", short_name(f"{owner.name}.{name}"), node=node, data=owner.data)
    if name == "module" and owner.op in MODULES and name not in owner.attributes:
        return owner
    if owner.op not in ("row", "dict", "function", "super") and name in owner.attributes:
        return owner.attributes[name]
    if owner.op in ("instance", "class", "super"):
        found = look_up(owner.data if owner.op != "class" else owner, name)
        if found is not None and isinstance(found[0], ast.AST):
            method, of = found
            plain = owner.op == "class" or any(ast.unparse(each) == "staticmethod" for each in method.decorator_list)
            bound = owner.attributes["instance"] if owner.op == "super" else owner
            frames = course.frames
            course.frames = [course.frames[0]] if (of.data is None) else [*frames[:1], of.data]
            made = course.function(method, None if plain else bound, of.node)
            course.frames = frames
            if any(ast.unparse(each) == "property" for each in method.decorator_list):
                from stayfinite.readers.configs.course.calling import call_function

                return call_function(course, made, [], {}, node)
            return made
        if found is not None:
            return found[0] if isinstance(found[0], Term) else course.term("unknown", node=node)
    if owner.op == "super" and name in owner.attributes["instance"].attributes and name != "instance":
        return owner.attributes["instance"].attributes[name]
    return course.term("attribute", name, (owner,), node)


def look_up(owner: Term, name: str) -> tuple[Any, Term] | None:
    """A method's definition, or a value, of a class of the script or those that it derives from."""
    if owner.op != "class":
        return None
    for each in owner.node.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name == name:
            return each, owner
    if name in owner.attributes:
        return owner.attributes[name], owner
    for base in owner.parts:
        found = look_up(base, name)
        if found is not None:
            return found
    return None


def method_result(course: Course, owner: Term, name: str, given: list[Term]) -> Term | None:
    """What a method of an instance returns; None if it has no such method."""
    from stayfinite.readers.configs.course.calling import call_function

    method = attribute_of(course, owner, name, None)
    return call_function(course, method, given, {}, None) if method.op == "function" else None
