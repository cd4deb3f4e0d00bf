"""Candidate edits of a training loop: calls that are missing or misplaced, its parameters, rates and data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.doctor.patching.text import Case, Remedy, Text, called, number_in, owner_of


def _no_zero_grad(case: Case) -> Iterator[str]:
    if case.backward is not None:
        yield case.text.with_line_before(case.backward, f"{case.optimizer}.zero_grad()")


def _cleared(case: Case) -> Iterator[str]:
    text, backward = case.text, case.backward
    if backward is None:
        return
    wrong = [each for each in case.calling("zero_grad") if each.lineno > backward.lineno]
    if late := [each for each in case.optimizer_steps if each.lineno < backward.lineno]:
        yield text.with_line_after(backward, f"{case.optimizer}.step()", *late)
    yield text.with_line_before(backward, f"{case.optimizer}.zero_grad()", *wrong)


def _double_step(case: Case) -> Iterator[str]:
    if case.backward is not None and len(steps := case.optimizer_steps) > 1:
        yield case.text.changed([steps[-1]], [])


def _accumulation(case: Case) -> Iterator[str]:
    for node in () if case.backward is None else ast.walk(case.backward):
        if called(node) == "backward" and (loss := owner_of(node)) is not None:
            count = case.top.finding.fix.partition("/")[2].strip().split(")")[0] or "2"
            yield case.text.with_node(loss, f"({case.text.source(loss)} / {count})")


def _mode(case: Case) -> Iterator[str]:
    """Add ``train()`` before the loop over batches, ``eval()`` before the evaluation."""
    text, backward, statement = case.text, case.backward, case.statement
    if backward is None:
        return
    name = _model_name(text, statement or backward)
    loop, function = text.loop_round(backward), text.function_round(backward)
    head: ast.stmt = loop or (backward if function is None else function.body[0])
    training = f"{name}.train()"
    if "evaluated" in case.top.finding.evidence[0] and statement is not None:
        outer: ast.stmt = statement
        for parent in text.parents(statement):
            if isinstance(parent, ast.FunctionDef | ast.Module):
                break
            if isinstance(parent, ast.For | ast.While | ast.With) and not any(backward is n for n in ast.walk(parent)):
                outer = parent
        evaluating = (outer.lineno, f"{text.indent(outer)}{name}.eval()")
        yield text.changed([], [evaluating, (head.lineno, f"{text.indent(head)}{training}")])
        return
    yield text.with_line_before(head, training)
    if loop is not None:
        wrong = [node for node in case.calling("eval") if loop.lineno - 3 <= node.lineno < backward.lineno]
        yield text.with_line_before(loop.body[0], training, *wrong)


def _model_name(text: Text, near: ast.stmt) -> str:
    names = [text.source(owner) for call in text.calls("train", "eval") if (owner := owner_of(call)) is not None]
    for node in ast.walk(near):
        if isinstance(node, ast.Call):
            source = text.source(node.func)
            if source in names or "model" in source or "net" in source:
                return source
    return names[0] if names else "model"


def _schedule(case: Case) -> Iterator[str]:
    text, statement = case.text, case.statement
    if case.backward is None or not isinstance(statement, ast.Expr):
        return
    line, inner, finding = text.source(statement), text.loop_round(case.backward), case.top.finding
    if inner is None:
        return
    if "every batch" not in finding.evidence[0] or "after every batch" in finding.fix:
        for step in case.calling("step"):
            if step is not statement:
                yield text.with_line_after(step, line, statement)
    elif any(statement is node for node in ast.walk(inner)):
        yield text.with_line_after(inner, line, statement)
        if (function := text.function_round(inner)) is not None:
            yield text.with_line_before(function.body[-1], line, statement)


def _held(case: Case) -> Iterator[str]:
    """Pass all models to the optimizer, or build it right before the loop."""
    text, statement, backward = case.text, case.statement, case.backward
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call) or not statement.value.args:
        return
    line, first = text.source(statement), statement.value.args[0]
    for node in ast.walk(first):
        # model.head.parameters() -> model.parameters()
        owner = owner_of(node) if called(node) == "parameters" else None
        if isinstance(owner, ast.Attribute) and text.source(owner.value) != "self":
            yield text.with_node(owner, text.source(owner.value))
        if isinstance(owner, ast.Subscript):
            yield text.with_node(first, f"[p for part in {text.source(owner.value)} for p in part.parameters()]")
    models = _model_variables(text)
    if len(models) > 1 and "self" not in line:
        joined = " + ".join(f"list({name}.parameters())" for name in models)
        yield text.with_node(first, joined)
        for assign in text.nodes(ast.Assign):
            if isinstance(first, ast.Name) and first.id in {t.id for t in assign.targets if isinstance(t, ast.Name)}:
                yield text.with_node(assign.value, joined)
        for name in models:
            yield text.with_node(first, f"{name}.parameters()")
    if "self" in line:
        for node in ast.walk(first):
            if called(node) == "parameters" and (function := text.function_round(statement)) is not None:
                # To the end of __init__, using self.model.
                moved = line.replace("(model.parameters()", "(self.model.parameters()")
                yield text.with_line_after(function.body[-1], moved, statement, indented_as=statement)
    if backward is not None:
        loops = [parent for parent in text.parents(backward) if isinstance(parent, ast.For | ast.While)]
        head = loops[-1] if loops else backward
        if text.function_round(head) is text.function_round(statement):
            yield text.with_line_before(head, line, statement)
    # After the first later statement that rebinds a model.
    for assign in text.nodes(ast.Assign):
        if assign.lineno > statement.lineno and any(isinstance(t, ast.Name) and t.id in models for t in assign.targets):
            yield text.with_line_after(assign, line, statement, indented_as=statement)
            return


def _model_variables(text: Text) -> list[str]:
    classes = {
        node.name for node in text.nodes(ast.ClassDef) if any("Module" in text.source(base) for base in node.bases)
    }
    names: list[str] = []
    for node in text.nodes(ast.Assign):
        targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for target, value in zip(targets, values, strict=False):
            made = {called(n) for n in ast.walk(value) if isinstance(n, ast.Call)}
            if isinstance(target, ast.Name) and made & (classes | {"Sequential", "ModuleList"}):
                names.append(target.id)
    return list(dict.fromkeys(names))


def _shuffle(case: Case) -> Iterator[str]:
    text = case.text
    for call in text.calls("DataLoader"):
        given = [k.value for k in call.keywords if k.arg == "shuffle"]
        if not given:
            yield text.with_node(call, f"{text.source(call)[:-1].rstrip().rstrip(',')}, shuffle=True)")
        elif isinstance(given[0], ast.Constant) and given[0].value is False:
            yield text.with_node(given[0], "True")


def _one_order(case: Case) -> Iterator[str]:
    text, statement = case.text, case.statement
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Subscript):
        return
    index = statement.value.slice
    for other in reversed(text.nodes(ast.Assign)):
        if not isinstance(other.value, ast.Subscript) or other.lineno >= statement.lineno:
            continue
        used = other.value.slice
        if isinstance(used, ast.Name) and isinstance(index, ast.Name) and used.id != index.id:
            yield text.with_node(index, used.id)
        elif isinstance(used, ast.Call) and isinstance(index, ast.Call):
            halfway = Text(text.with_node(index, "order"))
            again = halfway.statement_at(other.lineno)
            if isinstance(again, ast.Assign) and isinstance(again.value, ast.Subscript):
                last = Text(halfway.with_node(again.value.slice, "order"))
                yield last.changed([], [(other.lineno, f"{text.indent(other)}order = {text.source(used)}")])


def _reset(case: Case) -> Iterator[str]:
    """Set the running sum to 0 before the loop over batches."""
    text = case.text
    if case.backward is None:
        return
    for node in text.nodes(ast.AugAssign):
        head = text.loop_round(node) or text.loop_round(case.backward)
        if isinstance(node.target, ast.Name) and "item" in text.source(node.value) and head is not None:
            yield text.with_line_before(head, f"{node.target.id} = 0.0")


NAMES = ("lr", "learning_rate", "eta", "alpha_lr")
KEYS = ("lr", "learning_rate")
FLAGS = ("--lr", "--learning-rate", "--learning_rate")


def _rate(case: Case) -> Iterator[str]:
    """Change the learning rate where it is a literal: in a call, variable, dict or flag."""
    text = case.text
    factors = (0.01, 0.001, 1e-4) if case.top.finding.cause == "lr-too-high" else (1e3, 1e5, 1e6)
    places = (place for node in ast.walk(text.tree) for place in _rates_at(text, node))
    numbers = [(place, rate) for place in places if (rate := number_in(place)) is not None]
    for place, rate in numbers[:2]:
        for new in [f"{rate * factor:g}" for factor in factors] if rate else ["1e-3"]:
            yield text.with_node(place, new)


def _rates_at(text: Text, node: ast.AST) -> Iterator[ast.expr]:
    """Expressions in a node that hold a learning rate."""
    if isinstance(node, ast.keyword):
        if node.arg in KEYS:
            yield node.value
    elif isinstance(node, ast.Assign):
        if any(isinstance(t, ast.Name) and t.id.lower() in NAMES for t in node.targets):
            yield node.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in KEYS:
                yield value
    elif isinstance(node, ast.Call) and called(node) == "add_argument":
        if any(isinstance(a, ast.Constant) and a.value in FLAGS for a in node.args):
            yield from (k.value for k in node.keywords if k.arg == "default")
    elif isinstance(node, ast.Call) and "optim" in text.source(node.func) and len(node.args) >= 2:
        yield node.args[1]


def _eps(case: Case) -> Iterator[str]:
    for keyword in case.text.nodes(ast.keyword):
        if keyword.arg == "eps" and number_in(keyword.value) is not None:
            yield case.text.with_node(keyword.value, "1e-8")


LOOP_REMEDIES: dict[str, Remedy] = {
    "no-zero-grad": _no_zero_grad,
    "cleared-before-step": _cleared,
    "double-step": _double_step,
    "wrong-mode": _mode,
    "lr-schedule-bug": _schedule,
    "accumulation-unscaled": _accumulation,
    "params-not-in-optimizer": _held,
    "unshuffled": _shuffle,
    "duplicate-rows": _shuffle,
    "labels-shuffled": _one_order,
    "metric-not-reset": _reset,
    "lr-too-high": _rate,
    "lr-too-low": _rate,
    "lr-zero": _rate,
    "adam-eps-underflow": _eps,
}
