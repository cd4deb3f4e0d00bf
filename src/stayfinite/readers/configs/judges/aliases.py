"""Two names of one network where two networks are meant: a target or a reference that moves with what it judges."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.picking import MODULES
from stayfinite.readers.configs.course.terms import Event, Term
from stayfinite.readers.configs.judges.fault import Fault
from stayfinite.readers.configs.judges.program import Program

_FIXED = lazy_regex(r"(?:\w*_)?(?:target|teacher|ref|reference)(?:_\w+)?")
_SWITCHED = lazy_regex(r"disable_adapter|set_adapter|functional_call|swap")


def same_networks(program: Program) -> Iterator[Fault]:
    """`self.target = self.online`, then synchronized; `ref = policy`, then both compared on the same inputs."""
    if _SWITCHED.search(program.text) or not program.of("backward"):
        return
    for event in program.course.events:
        found = _loads_itself(event) if event.kind == "load_state_dict" else ""
        if found and id(event.term) in {id(each) for one in program.optimizers for each in program.holds(one) or ()}:
            yield _fault(found, event.node.lineno)
            return
    for one in program.optimizers:
        for model in program.holds(one) or ():
            for name, other in _names(program, model) if _is_compared(program, model) else ():
                yield _fault(f"{name.id} is {other.id}", name.lineno)
                return


def _names(program: Program, model: Term) -> Iterator[tuple[ast.Name, ast.Name]]:
    """Two names of one model in one function, of which neither is ever another's."""
    given = program.course.named
    others = {(id(frame), name.id) for frame, name, value in given if value is not model}
    own = [(frame, name) for frame, name, value in given if value is model and (id(frame), name.id) not in others]
    for frame, name in own if not model.passes else ():
        for place, other in own:
            if place is frame and _FIXED.fullmatch(name.id) and not _FIXED.fullmatch(other.id):
                yield name, other


def _fault(words: str, line: int) -> Fault:
    return Fault("target-out-of-step", f"{words}, and no copy: each step moves both", line, fix="use copy.deepcopy")


def _loads_itself(event: Event) -> str:
    """`target is online` where one of them loads the weights of the other."""
    given = event.given or event.result.parts[1:]
    state = given[0] if given else None
    call = event.node.args[0] if isinstance(event.node, ast.Call) and event.node.args else None
    same = state is not None and state.op == "method" and state.name == "state_dict" and state.parts[0] is event.term
    if not (same and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)) or event.term.passes:
        return ""
    target, source = event.node.func.value, call.func.value
    names = [each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in (target, source)]
    if event.term.op not in MODULES or not _FIXED.fullmatch(names[0]) or not names[1] or _FIXED.fullmatch(names[1]):
        return ""
    return f"{ast.unparse(target)} is {ast.unparse(source)}"


def _is_compared(program: Program, model: Term) -> bool:
    """Whether a loss compares what the model makes of the same inputs with and without a graph."""
    calls = [each for each in program.course.events if each.kind == "forward" and each.term is model and each.sure]
    with_graph = [each for each in calls if each.learns]
    return any(
        id(one.result) in program.course.learned and id(other.result) in program.course.learned
        and one.passes == other.passes and bool(_given(one)) and _given(one) == _given(other)
        for one in with_graph for other in calls if not other.learns
    )  # fmt: skip


def _given(event: Event) -> tuple[object, ...]:
    """The inputs; none where nobody can tell."""
    if event.term.op == "instance":
        named = not isinstance(event.node, ast.Call) or event.node.keywords
        return () if named else tuple(map(id, event.given))
    keywords = sorted((key, id(each)) for key, each in event.result.keywords.items())
    return (*map(id, event.given), *keywords)
