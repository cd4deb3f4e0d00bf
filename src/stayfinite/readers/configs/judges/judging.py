"""Judge one script: follow it once, and ask each mechanism."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import Course
from stayfinite.readers.configs.course.pages import Pages
from stayfinite.readers.configs.course.uncalled import course_of
from stayfinite.readers.configs.judges.accumulating import lost_sums, never_reached, not_divided
from stayfinite.readers.configs.judges.aliases import same_networks
from stayfinite.readers.configs.judges.attention import over_queries
from stayfinite.readers.configs.judges.choices import best_picked, unused_adapters
from stayfinite.readers.configs.judges.data import (
    axes_taken_for_others,
    not_finite,
    parted_pairs,
    same_batches,
    sorted_classes,
    split_scales,
)
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.frameworks import returned_nothing, unsynchronized
from stayfinite.readers.configs.judges.frozen import (
    all_frozen,
    compared_only,
    frozen_aliases,
    late_adapters,
    made_too_late,
    new_and_frozen,
)
from stayfinite.readers.configs.judges.leaks import copied_targets, leaks, shifted_twice, whole_again
from stayfinite.readers.configs.judges.losses import (
    crossed_shapes,
    flipped_signs,
    returned_probabilities,
    singular_places,
    wrong_axes,
    wrong_inputs,
)
from stayfinite.readers.configs.judges.measuring import wrong_modes, wrong_sums
from stayfinite.readers.configs.judges.objects import alike_workers, kept_metrics, scalers_never_updated
from stayfinite.readers.configs.judges.outputs import one_output
from stayfinite.readers.configs.judges.program import Program
from stayfinite.readers.configs.judges.scheduling import floored, rates, scheduled
from stayfinite.readers.configs.judges.starts import bad_starts, constant_features, initial_weights
from stayfinite.readers.configs.judges.stepping import (
    by_hand,
    cut_off,
    held_by_nobody,
    in_wrong_order,
    named_without_call,
    never_called,
    never_cleared,
    plain_lists,
    without_graph,
)
from stayfinite.readers.configs.libraries import is_complete

MOST_NODES = 20_000
_OTHER_WAYS = frozenset({"exec", "eval", "compile", "globals", "locals", "__import__"})
_TRAINS_ITSELF = lazy_regex(
    r"register_\w*hook|post_accumulate|deepspeed|lightning|torch\.func|functorch|functional_call|\bexec\(|"
    r"globals\(\)\[|torch\.distributed\.optim|__torch_function__|autograd\.Function"
)


_IS_WRAPPED = lazy_regex(r"accelerat")


def script_faults(tree: ast.Module, text: str, pages: Pages | None = None) -> tuple[list[Fault], list[Fault]]:
    """The faults of a script's updates, and those that only a whole script shows; ``text`` is that of all pages."""
    pages = pages or Pages(tree)
    nodes = list(pages.nodes)
    if len(nodes) > MOST_NODES and len(pages.trees) > 1:
        return script_faults(tree, text)
    updated = not _TRAINS_ITSELF.search(text) and ("optim" in text or ".backward" in text)
    plain = len(nodes) <= MOST_NODES and _is_plain(nodes)
    complete = (plain or updated) and is_complete(nodes, pages.inside)
    whole = plain and complete
    course = course_of(tree, pages) if whole or updated else None
    program = Program(course, text, nodes, whole=complete) if course is not None and updated else None
    return _of_updates(nodes, program), _of_whole(course) if course is not None and whole else []


def faults_of_parts(course: Course, *, whole: bool) -> list[Fault]:
    """What each part shows by itself, called or not; ``whole`` where nothing of the program was left out."""
    found: dict[str, Fault] = {}
    told = [one_output(course, whole=whole), unused_adapters(course, whole=whole)]
    told += [returned_nothing(course)] if whole else []
    if course.framed and whole:
        program = Program(course, course.code, course.nodes, whole=False)
        told += [judge(program) for judge in (without_graph, cut_off, made_too_late, all_frozen)]
    for fault in chain(*told, *(judge(course) for judge in _OF_PARTS)):
        if fault.cause not in found or (fault.sure and not found[fault.cause].sure):
            found[fault.cause] = fault
    if found.keys() & {"softmax-axis", "label-out-of-range"}:
        found.pop("metric-stuck", None)  # where nothing can be learned, the metric has nothing to measure
    return list(found.values())


_OF_PARTS = (
    copied_targets, initial_weights, returned_probabilities, best_picked, late_adapters, over_queries, alike_workers,
    shifted_twice,
)  # fmt: skip


def _is_plain(nodes: list[ast.AST]) -> bool:
    """Whether a script uses torch and runs no text."""
    calls = (node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [each.name for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for each in node.names]
    return any("torch" in each for each in modules) and _OTHER_WAYS.isdisjoint(calls)


def _of_whole(course: Course) -> list[Fault]:
    found: dict[tuple[str, int], Fault] = {}
    for judge in _OF_COURSE:
        for fault in judge(course):
            found.setdefault((fault.cause, fault.line), fault)
    return list(found.values())


def _of_updates(nodes: Sequence[ast.AST], program: Program | None) -> list[Fault]:
    found: dict[str, Fault] = {}
    told = [named_without_call(nodes), compared_only(nodes)]
    wrapped = program is not None and _IS_WRAPPED.search(program.text) is not None
    if program is not None and program.whole and not wrapped:
        told += [judge(program) for judge in _MISSING]
    if program is not None:
        told += [judge(program) for judge in (_OF_WEIGHTS if wrapped else (*_OF_WEIGHTS, *_WRONG))]
    for fault in chain.from_iterable(told):
        found.setdefault(fault.cause, fault)
    return list(found.values())


_MISSING = (by_hand, plain_lists, never_called, never_cleared, not_divided, rates)
"""What is missing: told only where no other code can do it."""
_WRONG = (
    unsynchronized, in_wrong_order, floored, lost_sums, never_reached, scheduled, cut_off, held_by_nobody,
)  # fmt: skip
"""What is done wrongly in plain sight."""
_OF_WEIGHTS = (without_graph, made_too_late, all_frozen, new_and_frozen, frozen_aliases, same_networks)
"""The same, whoever runs backward and the steps."""
_OF_COURSE: tuple[Callable[[Course], Iterator[Fault]], ...] = (
    wrong_modes, wrong_sums, wrong_inputs, wrong_axes, crossed_shapes, parted_pairs, same_batches, sorted_classes,
    split_scales, leaks, whole_again, flipped_signs, bad_starts, constant_features, singular_places,
    not_finite, axes_taken_for_others, kept_metrics, scalers_never_updated,
)  # fmt: skip
"""What is told of whole scripts alone."""
