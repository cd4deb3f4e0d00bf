"""All faults of a script's updates."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.readers.configs.loops import LoopFault
from stayfinite.readers.configs.updates.holding import all_frozen, cut_off, held_by_nobody, plain_lists, without_graph
from stayfinite.readers.configs.updates.program import followed
from stayfinite.readers.configs.updates.scheduling import rates, scheduled
from stayfinite.readers.configs.updates.stepping import (
    Found,
    by_hand,
    in_wrong_order,
    named_without_call,
    never_called,
    never_cleared,
    not_divided,
)

_OF_WHOLE = (never_called, never_cleared, not_divided, rates)
"""What is missing: told only where no other code can do it."""
_OF_PARTS = (in_wrong_order, scheduled, without_graph, cut_off, held_by_nobody, all_frozen)
"""What is done wrongly in plain sight."""


def update_faults(tree: ast.Module, text: str) -> list[LoopFault]:
    """The first fault of each cause; nothing where code outside the script may do what it leaves out."""
    found: dict[str, LoopFault] = {}
    for cause, words, line, mild in _all(tree, text):
        found.setdefault(cause, LoopFault(cause, words, line, mild=mild))
    return list(found.values())


def _all(tree: ast.Module, text: str) -> Iterator[Found]:
    yield from named_without_call(tree)
    program = followed(tree, text)
    if program is None:
        return
    if program.whole:
        yield from by_hand(tree, text)
        yield from plain_lists(tree, text)
    for judge in (*(_OF_WHOLE if program.whole else ()), *_OF_PARTS):
        yield from judge(program)
