"""Layers or tensors to train are not in model.parameters().

## What it means
`model.parameters()` finds only what is assigned as an `nn.Module` or `nn.Parameter` attribute, or held by
`nn.ModuleList`, `nn.ModuleDict` or `nn.ParameterList`. Layers in a Python list, or tensors with `requires_grad=True`
as plain attributes, get gradients in backward and are never updated, never moved to the GPU, never saved.

## Why it happens
- `self.layers = [nn.Linear(d, d) for _ in range(n)]` instead of `nn.ModuleList([...])`.
- `self.scale = torch.ones(1, requires_grad=True)` instead of `nn.Parameter(torch.ones(1))`; `.to(device)` or `* 0.1`
  on a Parameter gives a plain tensor.
- Layers made inside `forward`: new random ones at every step.
- A module stored before `super().__init__()`, or through `object.__setattr__` or a lambda.

## How to recognize it
- `ValueError: optimizer got an empty parameter list` for a model that has layers.
- `Expected all tensors to be on the same device` that names the CPU, from a layer that `model.cuda()` did not reach.
- Too few parameters: `sum(p.numel() for p in model.parameters())`, and keys that are missing from
  `model.state_dict()`.
- The loss moves a little (the registered head learns) and stays high.

## How to fix it
- `nn.ModuleList`, `nn.ModuleDict`, `nn.ParameterList`, `nn.Sequential(*layers)`; `nn.Parameter` for a tensor that
  learns, `register_buffer` for one that does not.
- Make layers in `__init__`; where a size is only known later, `nn.LazyLinear`.
- Build the optimizer after all layers exist.
- `print(model)` must show every layer.

## When it is a false alarm
A frozen helper (a teacher, a metric network) is sometimes kept in a list on purpose, so that it is neither trained
nor saved.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.gradient_flow.standstill import stands_still
from stayfinite.rules.rule import AGAINST, FAIR, STRONG, Clue, Clues, Rule, quote

_PLAIN_LIST = (
    r"self\.\w+ ?= ?\[ ?(?:nn|torch\.nn)\.\w+\(|self\.\w+\.append\( ?(?:nn|torch\.nn)\.\w+\(|"
    r"self\.\w+ ?= ?\{ ?['\"]?\w*['\"]? ?: ?(?:nn|torch\.nn)\.\w+\(|"
    r"self\.\w+ ?= ?\[ ?[A-Z]\w*(?:Layer|Block|Conv\w*|Linear|Head|Cell|Encoder|Decoder|Attention|Norm|MLP|"
    r"Expert)\(.{0,80}\) for \w+ in\b|"
    r"list (?:instead of|not a|rather than) (?:nn\.)?ModuleList|self\.\w+ ?= ?torch\.\w+\([^)]*requires_grad ?= ?True"
)

_WEIGHT_ON_CPU = r"input type \(?(?:torch\.)?cuda[\w.]*\)? and weight type \(?(?:torch\.)?(?!cuda)\w*Tensor"
_EMPTY = lazy_regex(r"\bself\.(\w+)\s*(?::[^=]{1,40})?=\s*(?:\[\s*\]|\{\s*\}|list\(\)|dict\(\)|OrderedDict\(\))")
_PUT = lazy_regex(
    r"\bself\.(\w+)(?:\.(?:append|extend|insert)\(\s*(?:\d+\s*,\s*)?|\[[^\]]{1,30}\]\s*=\s*|\s*\+=\s*\[?\s*)(\w.*)"
)
_IS_LAYER = lazy_regex(
    r"^(?:torch\.)?nn\.(?!functional\b|utils\b|init\b)[A-Z]\w*\(|^[A-Z]\w*(?:Layer|Block|Conv\w*|Linear|Head|Module|"
    r"Cell|Net|"
    r"Encoder|Decoder|Attention|Norm|MLP|Expert|LSTM|GRU)\("
)
_LAYER = lazy_regex(r"^\s*(\w+)\s*=\s*(?:torch\.)?nn\.(?!functional\b|utils\b|init\b)[A-Z]\w*\(")


def judge(facts: Facts) -> Clues:
    """Clues: layers in a plain list in the code, and a matching symptom."""
    stuck = stands_still(facts)
    if facts.symptoms.healthy and not stuck:
        return
    listed = facts.mentioned(_PLAIN_LIST) or _filled_later(facts)
    yield from quote(listed, STRONG, "layers in a plain list: {:.100}")
    empty = facts.said(r"optimizer got an empty parameter list")
    if empty is not None:
        yield Clue(empty.text, 3.5, empty.where)
        if listed is None and facts.mentioned(r"filter\(.{0,40}requires_grad|\bif \w+\.requires_grad") is not None:
            yield Clue("the optimizer got only trainable parameters", 1.5 * AGAINST)
        if facts.context.adapters is not None:
            yield Clue(
                ("with adapters, frozen parameters are the more common cause"), AGAINST, facts.context.adapters.where
            )
    elif listed is not None:
        device = facts.said(r"expected all tensors to be on the same device|input type .{0,40}and weight type")
        if device is not None:
            yield Clue(f"a layer stayed on the CPU: {device.text}", FAIR, device.where)
        elif facts.symptoms.flat or stuck:
            yield Clue("the loss does not move", FAIR, facts.symptoms.at("start"))
    else:
        yield from _left_behind(facts)


def _left_behind(facts: Facts) -> Clues:
    """A weight that stays on the CPU although the model was moved: its layer is not registered."""
    behind = facts.said(_WEIGHT_ON_CPU)
    if behind is None:
        return
    yield Clue(f"a layer's weight stayed on the CPU: {behind.text.strip()[:100]}", FAIR, behind.where)
    yield from quote(
        facts.mentioned(r"\b(?:model|net|self)\w*\.(?:cuda|to)\(|\.cuda\(gpu\)"),
        FAIR + 0.5,
        "although the model is moved: {:.80}",
    )


def _filled_later(facts: Facts) -> Line | None:
    """A plain list or dict of the model that gets layers on another line."""
    plain: set[str] = set()
    layers: set[str] = set()
    for where, text in facts.statements:
        if (kept := _EMPTY.search(text)) is not None:
            plain.add(kept.group(1))
        if (made := _LAYER.search(text)) is not None:
            layers.add(made.group(1))
        put = _PUT.search(text)
        if put is not None and put.group(1) in plain:
            value = put.group(2)
            named = re.match(r"\w+", value)
            if _IS_LAYER.search(value) or (named is not None and named.group() in layers):
                wrapped = rf"(?:ModuleList|ModuleDict|Sequential|add_module|register_module)\(.{{0,20}}{put.group(1)}"
                return None if facts.settings.search(wrapped) else Line(where, text)
    return None


RULE = Rule(
    code="SF405",
    fix="keep layers in nn.ModuleList or nn.ModuleDict and tensors in nn.Parameter, then build the optimizer",
    proofs={
        # Names of tensors that get gradients and are not in parameters(), a list.
        "modules.unregistered": "trained but not in parameters(): {}",
    },
    beats=("device-mismatch", "params-not-in-optimizer"),
)
