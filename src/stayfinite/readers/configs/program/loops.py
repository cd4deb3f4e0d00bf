"""Loops: followed once, or item by item if the items are few and known."""

from __future__ import annotations

import ast

from stayfinite.readers.configs.program.attributes import set_attribute, set_entry
from stayfinite.readers.configs.program.expressions import assign, assign_unknown
from stayfinite.readers.configs.program.names import bind
from stayfinite.readers.configs.program.operators import truth
from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.values import Instance, Row, Table, Value

_FEW, _MOST_ITEMS = 4, 100  # per loop, and for nested loops together
_MOST_UNROLLED = 5_000  # statement parts that an unrolled loop may reach
_MOST_NODES = 20_000


def follow_for(run: Run, statement: ast.For | ast.AsyncFor) -> bool:
    """`for`: each of a few known items in turn; otherwise once, with everything it changes unknown."""
    over = run.evaluate(run, statement.iter)
    items = over.data.items if isinstance(over.data, Row) and "items" in over.data.cell else None
    rounds = run.rounds * len(items or ())
    if items is not None and not run.spent and rounds <= _MOST_ITEMS and _is_short(items, statement.body):
        before, run.rounds = run.rounds, max(rounds, 1)
        for item in items:
            assign(run, statement.target, item)
            run.execute(run, statement.body)
        run.rounds = before
        return run.execute(run, statement.orelse)
    _forget(run, statement.body)
    assign_unknown(run, statement.target)
    run.either([lambda: run.execute(run, statement.body), lambda: False])
    return run.execute(run, statement.orelse)


def follow_while(run: Run, statement: ast.While) -> bool:
    """`while`: once, with everything it changes unknown."""
    if truth(run.evaluate(run, statement.test)) is False:
        return run.execute(run, statement.orelse)
    _forget(run, statement.body)
    run.either([lambda: run.execute(run, statement.body), lambda: False])
    return run.execute(run, statement.orelse)


def _is_short(items: list[Value], body: list[ast.stmt]) -> bool:
    """Whether a loop is short enough to unroll and has no early exit."""
    nodes = [node for each in body for node in ast.walk(each)]
    if len(items) > _FEW and len(items) * len(nodes) > _MOST_UNROLLED:
        return False
    return not any(isinstance(node, (ast.Break, ast.Continue, ast.Return)) for node in nodes)


def _forget(run: Run, body: list[ast.stmt]) -> None:
    """Make everything that a loop assigns unknown: an earlier iteration may have changed it."""
    seen = 0
    for statement in body:
        for node in ast.walk(statement):
            seen += 1
            if seen > _MOST_NODES:
                return
            if not isinstance(getattr(node, "ctx", None), ast.Store):
                continue
            if isinstance(node, ast.Name):
                if run.frame.scope.owner_of(node.id).names.get(node.id) is not None:
                    bind(run, node.id, run.unknown(node))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                holder = run.frame.scope.find(node.value.id)
                if holder is not None and isinstance(holder.data, Instance) and node.attr in holder.data.attributes:
                    set_attribute(run, holder, node.attr, run.unknown(node))
            elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                holder = run.frame.scope.find(node.value.id)
                if holder is not None and isinstance(holder.data, Table) and isinstance(node.slice, ast.Constant):
                    set_entry(run, holder, run.value(node.slice.value, node), run.unknown(node))
