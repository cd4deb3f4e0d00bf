"""Judge one script: follow it, and ask each mechanism."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from stayfinite.readers.configs.libraries import is_complete
from stayfinite.readers.configs.loops import LoopFault
from stayfinite.readers.configs.course.computing import compute
from stayfinite.readers.configs.course.following import Course, TooMuch
from stayfinite.readers.configs.judges.inputs import axes_taken_for_others, not_finite
from stayfinite.readers.configs.judges.leaks import leaks
from stayfinite.readers.configs.judges.losses import crossed_shapes, wrong_axes, wrong_inputs
from stayfinite.readers.configs.judges.modes import wrong_modes
from stayfinite.readers.configs.judges.pairs import parted_pairs
from stayfinite.readers.configs.judges.repeats import same_batches, sorted_classes
from stayfinite.readers.configs.judges.signs import flipped_signs
from stayfinite.readers.configs.judges.singular import singular_places
from stayfinite.readers.configs.judges.splits import split_scales
from stayfinite.readers.configs.judges.starts import bad_starts, constant_features
from stayfinite.readers.configs.judges.sums import wrong_sums

_OTHER_WAYS = frozenset({"exec", "eval", "compile", "globals", "locals", "__import__"})
MOST_NODES = 20_000

Judge = Callable[[Course], Iterator[LoopFault]]


def faults_of_script(tree: ast.Module) -> list[LoopFault]:
    """The faults of a script that a whole course shows; none of a script that others complete."""
    course = course_of(tree)
    if course is None:
        return []
    found: dict[tuple[str, int], LoopFault] = {}
    for judge in _JUDGES:
        for fault in judge(course):
            found.setdefault((fault.cause, fault.line), fault)
    return list(found.values())


def course_of(tree: ast.Module) -> Course | None:
    """The course of a script; None if it cannot be followed."""
    nodes = list(ast.walk(tree))
    if len(nodes) > MOST_NODES or not is_whole(tree, nodes):
        return None
    course = Course(tree, compute)
    try:
        course.run(tree.body)
    except (TooMuch, RecursionError):
        return None
    return course


def is_whole(tree: ast.Module, nodes: list[ast.AST]) -> bool:
    """Whether nothing but the script itself can train: it is complete, uses torch, and runs no text."""
    calls = (node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    imports = (node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
    return any("torch" in ast.unparse(each) for each in imports) and _OTHER_WAYS.isdisjoint(calls) and is_complete(tree)


_JUDGES: tuple[Judge, ...] = (
    wrong_modes,
    wrong_sums,
    wrong_inputs,
    wrong_axes,
    crossed_shapes,
    parted_pairs,
    same_batches,
    sorted_classes,
    split_scales,
    leaks,
    flipped_signs,
    bad_starts,
    constant_features,
    singular_places,
    not_finite,
    axes_taken_for_others,
)
