"""Calls as terms: the script's own functions and modules are followed, a library's calls are noted."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import MOST_CALLS, MOVES
from stayfinite.readers.configs.course.picking import (
    FOREIGN,
    MODULES,
    STACKS,
    attribute_of,
    is_foreign,
    item_of,
    layers_of,
    look_up,
    truth,
)
from stayfinite.readers.configs.course.terms import (
    HIDDEN,
    NONE,
    OPTIMIZER_OF_TIMM,
    UNKNOWN,
    VALUES_KEPT,
    Frame,
    Term,
    constant,
    hides_weights,
    is_layer,
    joined_modes,
)

if TYPE_CHECKING:
    from stayfinite.readers.configs.course.following import Course

Keywords = dict[str, Term]
_WRAPPERS = frozenset({
    "DataParallel", "DistributedDataParallel", "DDP", "compile", "script", "tqdm",
    "convert_sync_batchnorm",
})  # fmt: skip
_GROWING = frozenset({"append", "extend", "insert", "add", "update", "pop", "clear", "remove", "popleft", "add_module"})
_OF_VALUES = VALUES_KEPT | {"softmax", "log_softmax", "sigmoid", "argmax", "max", "mean", "sum"}
_SHORT_NAMES = frozenset({"torch", "F", "nn", "np", "numpy", "tf", "jnp", "jax", "K", "keras", "paddle", "math"})
_LOADS_MODEL = lazy_regex(
    r"torchvision\.models\.(?:\w+\.)*(?!get_|list_)[a-z]\w*|(?:\w+\.)*(?:timm\.create_model|get_peft_model)|"
    r"(?:\w+\.)*\w*(?:Model|LM|For[A-Z]\w*|Net|UNet\w*|Transformer\w*|Encoder|Decoder)\.from_(?:pretrained|config)"
)
_RUNS = frozenset({"CLI", "auto_cli", "Fire", "run", "typer", "launch", "notebook_launcher"})
_NEW_HEAD = frozenset({"reset_classifier", "reset_head"})
_IN_PLACE = frozenset({"shuffle"})
_AROUND = frozenset({"row", "dict", "either", "index", "starred"})
"""Through these, a model holds its layers."""
_OF_UPDATES = frozenset({"backward", "step", "zero_grad", "clear_grad", "grad"})
_TOLD = frozenset({"backward", "step", "load_state_dict", "register_buffer"})


def call(course: Course, node: ast.Call) -> Term:
    """The value of a call."""
    given: list[Term] = []
    for each in node.args:
        value = course.value(each.value if isinstance(each, ast.Starred) else each)
        if isinstance(each, ast.Starred):
            known = value.op == "row" and value.data != "grown"
            given += (
                value.parts
                if known
                else (course.term("starred", parts=(value,), node=each, data=course.tails.get(id(value))),)
            )
        else:
            given.append(value)
    keywords: Keywords = {}
    for one in node.keywords:
        value = course.value(one.value)
        if one.arg:
            keywords[one.arg] = value
        elif value.op == "dict" and value.data != "grown":  # `**options`
            keywords.update({key: each for key, each in value.attributes.items() if isinstance(key, str)})
    if isinstance(node.func, ast.Attribute):
        owner = course.value(node.func.value)
        of_value = course.guesses and node.func.attr in _OF_VALUES and owner.name not in _SHORT_NAMES
        if owner.op != "library" or (of_value and "." not in owner.name):
            return _method(course, owner, node, given, keywords)
    function = course.value(node.func)
    if function.op == "library":
        return _library(course, function, node, given, keywords)
    return call_value(course, function, given, keywords, node)


def call_value(course: Course, function: Term, given: list[Term], keywords: Keywords, node: Any) -> Term:
    """Call something."""
    if function.op == "function":
        return call_function(course, function, given, keywords, node)
    if function.op == "class":
        return _instance(course, function, given, keywords, node)
    if function.op == "instance":
        return _forward(course, function, given, keywords, node)
    layers = layers_of(function)
    if layers and function.last == "Sequential" and len(given) == 1:
        result = given[0]
        for layer in layers:
            result = call_value(course, layer, [result], {}, node)
    else:
        result = course.term("applied", function.name, (function, *given), node, keywords=keywords)
    if function.op == "made":
        course.tell("forward", function, result, node, tuple(given))
    return result


def call_function(course: Course, function: Term, given: list[Term], keywords: Keywords, node: Any) -> Term:
    """Follow a function of the script."""
    outer, owner, of = function.data
    definition = function.node
    if course.depth >= MOST_CALLS:
        result = course.term("unknown", "deep", tuple(given), node)
        course.tell("foreign", UNKNOWN, result, node)
        return result
    frame = Frame(outer=outer, owner=owner, of=of)
    arguments = definition.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    given = [owner, *given] if owner is not None else given
    for name in (*names, *(each.arg for each in arguments.kwonlyargs)):
        frame.names[name] = (
            function.attributes.get(name) or course.guessed(name) or course.term("unknown", name, node=node)
        )
    frame.names.update(zip(names, given, strict=False))
    frame.names.update(keywords)
    if arguments.vararg is not None:
        frame.names[arguments.vararg.arg] = course.term("row", parts=tuple(given[len(names) :]), node=node)
    learns, frames, doubt = course.learns, course.frames, course.doubt
    if any(ast.unparse(each).split("(")[0].endswith(("no_grad", "inference_mode"))
           for each in getattr(definition, "decorator_list", ())):  # fmt: skip
        course.learns = False
    course.frames, course.depth = [*frames[:1], frame], course.depth + 1
    course.calls.append(definition)
    course.followed.add(definition)
    try:
        if isinstance(definition, ast.Lambda):
            return course.value(definition.body)
        left = course.run(definition.body)
    finally:
        course.calls.pop()
        course.frames, course.depth, course.learns, course.doubt = frames, course.depth - 1, learns, doubt
    if frame.left:
        course.modes = joined_modes([*frame.left, *([] if left else [course.modes])])
    if frame.yields:
        return course.term("yielded", parts=tuple(frame.yields), node=node)
    course.returned.setdefault(definition, []).extend(frame.results)
    results = [*frame.results, *([] if left else [NONE])]
    return course.either(results) if results else NONE


def _instance(course: Course, of: Term, given: list[Term], keywords: Keywords, node: Any) -> Term:
    made = course.term("instance", of.name, (), node, of)
    init = attribute_of(course, made, "__init__", node)
    if init.op == "function":
        call_function(course, init, given, keywords, node)
    else:
        fields = list(of.attributes)
        made.attributes.update(zip(fields, given, strict=False))
        made.attributes.update(keywords)
        made.attributes["arguments"] = course.term("row", parts=(*given, *keywords.values()), node=node)
    return made


def _forward(course: Course, model: Term, given: list[Term], keywords: Keywords, node: Any) -> Term:
    name = "forward" if look_up(model.data, "forward") else "__call__"
    forward = attribute_of(course, model, name, node)
    if forward.op == "function":
        result = call_function(course, forward, given, keywords, node)
    else:
        result = course.term("applied", model.name, (model, *given), node, keywords=keywords)
    course.tell("forward", model, result, node, tuple(given))
    return result


def _library(course: Course, function: Term, node: ast.Call, given: list[Term], keywords: Keywords) -> Term:
    last = function.last
    if last in _WRAPPERS and given and given[0].op != "const":
        course.spread.update({id(given[0])} if last in ("DistributedDataParallel", "DDP") else ())
        return given[0]
    if function.name == "super":
        return _super(course, node)
    if function.name == "getattr" and len(given) > 1 and isinstance(constant(given[1]), str):
        held = given[0].attributes.get(given[1].data)
        if len(given) > 2 and held is None:
            return given[2]
        return held or attribute_of(course, given[0], given[1].data, node)
    if function.name == "setattr" and len(given) == 3 and isinstance(constant(given[1]), str):
        given[0].attributes[given[1].data] = given[2]
    if function.name == "next" and given:
        return item_of(course, given[0], node)
    if function.name in ("list", "tuple") and len(given) == 1 and given[0].op == "row":
        return given[0]
    if function.name == "dict" and not given and all(each.arg for each in node.keywords):
        options = course.term("dict", node=node)
        options.attributes.update(keywords)
        return options
    if last in _IN_PLACE and len(node.args) == 1 and isinstance(node.args[0], (ast.Name, ast.Attribute)):
        course.give(node.args[0], course.term("shuffled", function.name, (given[0],), node))
        return NONE
    if function.name.startswith(("nn.init.", "torch.nn.init.", "init.")) and given:
        course.tell("init", given[0], course.term("call", function.name, tuple(given), node, keywords=keywords), node)
    if "seed" in last:
        course.tell("seed", UNKNOWN, NONE, node)
    if last == "deepcopy" and given and given[0].op in MODULES:
        return copied(course, given[0], node)
    for each in given if function.data is FOREIGN and last in _RUNS else ():
        if each.op == "function":
            call_function(course, each, [], {}, node)  # `fire.Fire(main)`
    model = _LOADS_MODEL.fullmatch(function.name) is not None
    made = model or function.name.startswith(OPTIMIZER_OF_TIMM) or (last[:1].isupper() and not last.endswith("Tensor"))
    result = course.term("made" if made else "call", function.name, tuple(given), node, keywords=keywords,
                         data=HIDDEN if model else None)  # fmt: skip
    if function.data is FOREIGN:
        course.foreign.add(id(result))
    course.tell("foreign" if function.data is FOREIGN else "called", UNKNOWN, result, node)
    if is_layer(result) and any(getattr(each, "name", "") in ("forward", "__call__") for each in course.calls):
        course.fleeting.add(id(result))
    return result


def copied(course: Course, term: Term, node: Any, known: dict[int, Term] | None = None) -> Term:
    """A copy of a model, with copies of its layers."""
    known = {} if known is None else known
    if id(term) in known or not (term.op in MODULES or term.op in _AROUND):
        return known.get(id(term), term)
    made = known[id(term)] = course.term(term.op, term.name, (), node, term.data, term.keywords)
    made.parts = tuple(copied(course, each, node, known) for each in term.parts)
    made.attributes = {key: copied(course, each, node, known) for key, each in term.attributes.items()}
    course.copies.add(id(made))
    return made


def _super(course: Course, node: ast.Call) -> Term:
    owner = course.frame.owner
    of = course.frame.of
    found = owner.data if owner is not None and owner.op == "instance" else None
    while found is not None and found.node is not of:
        found = found.parts[0] if found.parts and found.parts[0].op == "class" else None
    base = found.parts[0] if found is not None and found.parts else UNKNOWN
    made = course.term("super", node=node, data=base)
    made.attributes["instance"] = owner or UNKNOWN
    return made


def _method(course: Course, owner: Term, node: ast.Call, given: list[Term], keywords: Keywords) -> Term:
    assert isinstance(node.func, ast.Attribute)
    name = node.func.attr
    if owner.op in ("instance", "class", "super"):
        method = attribute_of(course, owner, name, node)
        if method.op != "attribute":
            return call_value(course, method, given, keywords, node)
    if owner.op == "super":
        owner = owner.attributes["instance"]
    if name in owner.attributes and owner.op not in ("row", "dict"):
        return call_value(course, owner.attributes[name], given, keywords, node)
    if name == "prepare" and owner.op == "made" and owner.last == "Accelerator":
        return given[0] if len(given) == 1 else course.term("row", parts=tuple(given), node=node)
    if name in ("eval", "train") and owner.op not in ("row", "dict", "const"):
        _switch(course, owner, name, given, keywords, node)
        return owner
    if name in ("parameters", "named_parameters") and owner.op == "made" and id(owner) in course.foreign:
        owner.data = owner.data or HIDDEN
    if name in _GROWING:
        course.ends.pop(id(owner), None)
        course.tails.pop(id(owner), None)
        if name == "append" and given and not course.doubt:
            course.ends[id(owner)] = given[0]
    if name in _NEW_HEAD and hides_weights(owner):
        head = owner.attributes[name] = course.term("made", name, tuple(given), node, HIDDEN)
        course.titles[id(head)] = f"the new head of {ast.unparse(node.func.value)}"
    if owner.op in MODULES and name in MOVES:
        if name == "apply":
            for each in given[:1]:
                course.tell("init", owner, each, node)
        elif name == "requires_grad_":
            course.tell("called", owner, course.term("method", name, (owner, *given), node, keywords=keywords), node)
        return owner
    if name == "append" and owner.op == "row" and given and _is_plain(course, owner):
        owner.parts = (*owner.parts, given[0])
        return NONE
    if owner.op == "either" and name == "append" and given and all(each.op == "row" for each in owner.parts):
        for each in owner.parts:  # (plain if p.ndim == 1 else decay).append(p)
            each.data = "grown"
            each.attributes[len(each.attributes)] = given[0]
    if name in _GROWING and owner.op in ("row", "dict", "made"):
        if name not in ("append", "add", "add_module"):
            course.loose.add(id(owner))
        if owner.op != "made" or owner.last in STACKS:
            owner.data = "grown"
        if (owner.op == "row" or is_layer(owner) or owner.last in STACKS) and given:
            owner.attributes[len(owner.attributes)] = given[-1]
    if name in ("items", "keys", "values", "setdefault", "get") and owner.op == "dict":
        return course.term("unknown", parts=tuple(owner.attributes.values()), node=node)
    if name == "format" and owner.op == "const":
        return course.term("text", parts=(*given, *keywords.values()), node=node)
    if name in _IN_PLACE and len(node.args) == 1 and isinstance(node.args[0], (ast.Name, ast.Attribute)):
        course.give(node.args[0], course.term("shuffled", name, (given[0],), node))  # rng.shuffle(x)
        return NONE
    unseen = is_foreign(owner, course.foreign)
    only = course.only_method(name) if unseen and name not in _OF_UPDATES else None
    if only is not None:
        return _elsewhere(course, only, [owner, *given], keywords, node)
    for each in (*given, *keywords.values()):
        if each.op == "function" and name == "step":
            call_function(course, each, [], {}, node)  # a closure
    result = course.term("method", name, (owner, *given), node, keywords=keywords)
    if name == "register_buffer" and len(given) > 1 and isinstance(constant(given[0]), str):
        owner.attributes[given[0].data] = given[1]
    subject = given[0] if name == "backward" and owner.op == "made" and given else owner  # accelerator.backward(loss)
    course.tell(name if name in _TOLD else "foreign" if unseen else "called", subject, result, node)
    if name.endswith("_") and not name.startswith("_") and name != "requires_grad_":
        course.tell("in place", owner, result, node)
    return result


def _elsewhere(course: Course, method: ast.stmt, given: list[Term], keywords: Keywords, node: Any) -> Term:
    """Follow a method of an unknown object, as the only one of its name."""
    frames, course.frames = course.frames, course.frames[:1]
    made = course.function(method)
    course.frames = frames
    return call_function(course, made, given, keywords, node)


def _is_plain(course: Course, row: Term) -> bool:
    """Whether a list still holds what it was made with, and no loop or branch has begun since."""
    return row.data != "grown" and not course.doubt and row.passes == tuple(course.passes)


def _switch(course: Course, owner: Term, name: str, given: list[Term], keywords: Keywords, node: Any) -> None:
    """`model.eval()`, `model.train(mode)`: of the model and all that it holds."""
    asked = keywords.get("mode", given[0] if given else None)
    on = name == "train" and (asked is None or truth(asked) is True)
    mode = frozenset({"train", "eval"}) if name == "train" and asked is not None and truth(asked) is None else None
    mode = mode or frozenset({"train" if on else "eval"})
    for each in held_by(owner):
        course.modes[id(each)] = mode
    course.tell("switch", owner, course.term("const", data="/".join(sorted(mode)), node=node), node)


def held_by(model: Term) -> list[Term]:
    """A model and all models inside it."""
    found: list[Term] = []
    work, seen = [model], set[int]()
    while work:
        term = work.pop()
        if id(term) in seen or len(found) > 3_000:
            continue
        seen.add(id(term))
        if term.op in MODULES or term is model:
            found.append(term)
        if term.op in ("instance", "made", "row", "dict", "either", "index", "starred"):
            work += [*term.parts, *term.attributes.values()] if term.op != "instance" else term.attributes.values()
    return found
