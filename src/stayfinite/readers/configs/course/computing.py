"""Expressions as terms."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from stayfinite.readers.configs.course.calling import call
from stayfinite.readers.configs.course.following import Course, TooMuch
from stayfinite.readers.configs.course.picking import attribute_of, entry_of, global_name, item_of, items_of, truth
from stayfinite.readers.configs.course.terms import Term, is_layer, number
from stayfinite.readers.configs.program.names import computed
from stayfinite.readers.configs.program.state import MISSING


def compute(course: Course, node: ast.expr) -> Term:
    """The value of an expression."""
    course.steps += 1
    if course.steps > 20 * 30_000:
        raise TooMuch
    look = _KINDS.get(type(node))
    return course.term("unknown", node=node) if look is None else look(course, node)


def _constant(course: Course, node: ast.Constant) -> Term:
    return course.term("const", node=node, data=node.value)


def _name(course: Course, node: ast.Name) -> Term:
    found = course.find(node.id) or global_name(node.id, node)
    if course.guesses and found.op == "library":
        course.frames[0].names.setdefault(node.id, found)  # the same value at each use, with its attributes
    return found


def _attribute(course: Course, node: ast.Attribute) -> Term:
    return attribute_of(course, course.value(node.value), node.attr, node)


def _subscript(course: Course, node: ast.Subscript) -> Term:
    return entry_of(course, course.value(node.value), course.value(node.slice), node)


def _slice(course: Course, node: ast.Slice) -> Term:
    return course.term(
        "slice", parts=tuple(course.value(each) for each in (node.lower, node.upper, node.step)), node=node
    )


def _binary(course: Course, node: ast.BinOp) -> Term:
    left, right, name = course.value(node.left), course.value(node.right), type(node.op).__name__
    if number(left) is not None and number(right) is not None:
        result = computed(node.op, left.data, right.data)
        if result is not MISSING:
            return course.term("const", node=node, data=result)
    if name == "Add" and left.op == right.op == "row" and "grown" not in (left.data, right.data):
        return course.term("row", parts=(*left.parts, *right.parts), node=node)
    return course.term("binary", name, (left, right), node)


def _unary(course: Course, node: ast.UnaryOp) -> Term:
    inner, name = course.value(node.operand), type(node.op).__name__
    if name == "USub" and number(inner) is not None:
        return course.term("const", node=node, data=-inner.data)
    return course.term("unary", name, (inner,), node)


def _compare(course: Course, node: ast.Compare) -> Term:
    parts = (course.value(node.left), *(course.value(each) for each in node.comparators))
    return course.term("compare", type(node.ops[0]).__name__, parts, node)


def _bool(course: Course, node: ast.BoolOp) -> Term:
    return course.term("bool", type(node.op).__name__, tuple(course.value(each) for each in node.values), node)


def _if(course: Course, node: ast.IfExp) -> Term:
    known = truth(course.value(node.test))
    if known is not None:
        return course.value(node.body if known else node.orelse)
    with course.under(node, "body"):
        one = course.value(node.body)
    with course.under(node, "else"):
        return course.either([one, course.value(node.orelse)])


def _row(course: Course, node: ast.Tuple | ast.List | ast.Set) -> Term:
    parts: list[Term] = []
    grown = None
    for each in node.elts:
        value = course.value(each.value if isinstance(each, ast.Starred) else each)
        if isinstance(each, ast.Starred):
            grown = grown if value.op == "row" and value.data != "grown" else "grown"
            parts += value.parts if value.op == "row" else (value,)
        else:
            parts.append(value)
    return course.term("row", parts=tuple(parts), node=node, data=grown)


def _dict(course: Course, node: ast.Dict) -> Term:
    made = course.term("dict", node=node)
    for key, value in zip(node.keys, node.values, strict=True):
        found = course.value(value)
        name = course.value(key).data if key is not None else None
        if name is None:
            made.data = "grown"
        made.attributes[name] = found
    return made


def _comprehension(course: Course, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Term:
    names = dict(course.frame.names)
    course.doubt += 1
    found: list[Term] = []
    first, *more = node.generators
    over = course.value(first.iter)
    items = items_of(course, over, node)
    places: list[Term | None] = [*items] or [None, None]
    for item in places:
        if item is None and found and not (found[0].op == "instance" or is_layer(found[0])):
            break  # only of models there is another
        for each in node.generators:
            inner = over if each is first else course.value(each.iter)
            course.passes.append((id(each), 1))
            course.loops[id(each)] = each
            course.give(each.target, item if each is first and item is not None else item_of(course, inner, node))
            for test in each.ifs:
                course.value(test)
        found.append(course.value(node.value if isinstance(node, ast.DictComp) else node.elt))
        del course.passes[-len(node.generators) :]
    course.doubt -= 1
    course.frame.names.clear()
    course.frame.names.update(names)
    grows = not items or more or first.ifs
    return course.term("row", parts=tuple(found), node=node, data="grown" if grows else None)


def _lambda(course: Course, node: ast.Lambda) -> Term:
    return course.function(node)


def _starred(course: Course, node: ast.Starred) -> Term:
    return course.value(node.value)


def _text(course: Course, node: ast.JoinedStr) -> Term:
    parts = [course.value(each.value) for each in node.values if isinstance(each, ast.FormattedValue)]
    return course.term("text", parts=tuple(parts), node=node)


def _named(course: Course, node: ast.NamedExpr) -> Term:
    value = course.value(node.value)
    course.give(node.target, value)
    return value


def _yield(course: Course, node: ast.Yield) -> Term:
    course.frame.yields.append(course.value(node.value))
    return course.term("unknown", node=node)


_KINDS: dict[type[ast.expr], Callable[[Course, Any], Term]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _subscript, ast.Slice: _slice,
    ast.BinOp: _binary, ast.UnaryOp: _unary, ast.Compare: _compare, ast.BoolOp: _bool, ast.IfExp: _if,
    ast.Tuple: _row, ast.List: _row, ast.Set: _row, ast.Dict: _dict, ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension, ast.SetComp: _comprehension, ast.DictComp: _comprehension,
    ast.Lambda: _lambda, ast.Starred: _starred, ast.JoinedStr: _text, ast.NamedExpr: _named, ast.Yield: _yield,
    ast.Call: call,
}  # fmt: skip
