"""Follow what the script's own statements do not reach: functions that nobody calls, parts of a program."""

from __future__ import annotations

import ast

from stayfinite.readers.configs.course.calling import call_function, call_value
from stayfinite.readers.configs.course.computing import compute
from stayfinite.readers.configs.course.following import Course, TooMuch
from stayfinite.readers.configs.course.pages import PAGE, Pages
from stayfinite.readers.configs.course.picking import attribute_of
from stayfinite.readers.configs.course.terms import HIDDEN, UNKNOWN, Term


def course_of(tree: ast.Module, pages: Pages | None = None) -> Course | None:
    """The course of a script; None if it is too long."""
    course = Course(tree, compute, pages)
    try:
        course.run(tree.body)
    except (TooMuch, RecursionError):
        return None
    return course


def course_of_parts(tree: ast.Module, pages: Pages | None = None) -> Course:
    """The course of all that a text shows of a program, statement by statement, as far as it can be followed."""
    course = Course(tree, compute, pages)
    course.guesses = True
    try:
        for statement in tree.body:
            course.run([statement])
        _follow_the_rest(course)
    except (TooMuch, RecursionError):
        pass
    return course


def _follow_the_rest(course: Course) -> None:
    """Follow each function that was not called, with arguments that nobody knows."""
    for each in course.defined:  # which grows on the way
        if each.line >= PAGE:
            continue  # of a module beside the script
        if each.op == "function":
            _follow(course, each)
            continue
        instance = next((one for one in course.terms if one.op == "instance" and one.data is each), None)
        if instance is None:
            instance = call_value(course, each, [], {}, each.node)
        for part in each.node.body:
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part not in course.followed:
                method = attribute_of(course, instance, part.name, part)
                if _OF_FRAMEWORKS.get(part.name) in {base.last for base in each.parts} and method.op == "function":
                    _train(course, method, each.node)
                else:
                    _follow(course, method)


_OF_FRAMEWORKS = {"training_step": "LightningModule", "compute_loss": "Trainer"}
"""Methods that a framework calls, and whose result it runs backward on."""


def _train(course: Course, method: Term, owner: ast.ClassDef) -> None:
    """Follow what a framework calls with a batch of data, and perhaps with the model."""
    arguments = method.node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    batch = course.term("batch", "items", (Term("const"),), method.node)
    given = {name: batch for name in names[1:] if name not in method.attributes}
    if "model" in given:
        given["model"] = course.term("made", "model", (), method.node, HIDDEN)
        course.titles[id(given["model"])] = "the model"
    result = call_function(course, method, [], given, method.node)
    if "automatic_optimization" not in ast.unparse(owner):
        course.framed = True
        loss = _loss_of(result)
        course.tell("backward", loss, course.term("method", "backward", (loss,), method.node), method.node)


def _loss_of(result: Term) -> Term:
    """The loss that a step returns: alone, first or by its name."""
    if result.op == "either":
        losses = {id(one): one for one in map(_loss_of, result.parts)}
        return next(iter(losses.values())) if len(losses) == 1 else UNKNOWN
    if result.op == "dict":
        return result.attributes.get("loss", UNKNOWN)
    return result.parts[0] if result.op == "row" and result.parts else result


def _follow(course: Course, function: Term) -> None:
    if function.op == "function" and function.node not in course.followed:
        left = {name for name, each in function.attributes.items() if each.op == "const" and each.data is None}
        given = {name: course.guessed(name) or course.term("unknown", name, node=function.node) for name in left}
        call_function(course, function, [], given, function.node)
