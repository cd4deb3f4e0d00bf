"""Follow what the script's own statements do not reach: functions that nobody calls, parts of a program."""

from __future__ import annotations

import ast

from stayfinite.readers.configs.course.calling import call_function, call_value
from stayfinite.readers.configs.course.computing import compute
from stayfinite.readers.configs.course.following import Course, TooMuch
from stayfinite.readers.configs.course.picking import attribute_of
from stayfinite.readers.configs.course.terms import Term


def course_of(tree: ast.Module) -> Course | None:
    """The course of a script; None if it is too long."""
    course = Course(tree, compute)
    try:
        course.run(tree.body)
    except (TooMuch, RecursionError):
        return None
    return course


def course_of_parts(tree: ast.Module) -> Course:
    """The course of all that a text shows of a program, statement by statement, as far as it can be followed."""
    course = Course(tree, compute)
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
        if each.op == "function":
            _follow(course, each)
            continue
        instance = next((one for one in course.terms if one.op == "instance" and one.data is each), None)
        if instance is None:
            instance = call_value(course, each, [], {}, each.node)
        for part in each.node.body:
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part not in course.followed:
                _follow(course, attribute_of(course, instance, part.name, part))


def _follow(course: Course, function: Term) -> None:
    if function.op == "function" and function.node not in course.followed:
        left = {name for name, each in function.attributes.items() if each.op == "const" and each.data is None}
        given = {name: course.guessed(name) or course.term("unknown", name, node=function.node) for name in left}
        call_function(course, function, [], given, function.node)
