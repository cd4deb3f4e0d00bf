"""All rules by code or slug. A rule is registered by being in a family's folder."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from stayfinite.errors import UsageError
from stayfinite.rules import (
    checkpoint,
    data,
    device,
    evaluation,
    gradient_flow,
    harmless,
    numerics,
    optimization,
    precision,
)
from stayfinite.rules.rule import Rule

FAMILIES = {
    "precision": precision,
    "optimization": optimization,
    "data and labels": data,
    "gradient flow": gradient_flow,
    "device and distributed": device,
    "loss and model numerics": numerics,
    "checkpoint and resume": checkpoint,
    "evaluation": evaluation,
    "looks bad, is harmless": harmless,
}
"""In code order: 1xx, 2xx, ..."""


@cache
def all_rules() -> tuple[Rule, ...]:
    """All rules, by code."""
    rules = [rule for family in FAMILIES.values() for rule in _rules_in(family)]
    return tuple(sorted(rules, key=lambda rule: rule.code))


@cache
def rule_of(name: str) -> Rule:
    """The rule with this code (`SF101`, `sf101`, `101`) or slug. Loads as few rules as possible."""
    wanted = name.strip().lower().replace("_", "-")
    if re.fullmatch(r"(?:sf)?[1-9]\d\d", wanted):
        family = list(FAMILIES.values())[int(wanted[-3]) - 1]
        for rule in _rules_in(family):
            if rule.code.lower().endswith(wanted):
                return rule
    for family in FAMILIES.values():
        module = wanted.replace("-", "_")
        found = _rule_in(family, module) if _holds(family, module) else None
        if found is not None:
            return found
    known = [word for rule in all_rules() for word in (rule.slug, rule.code)]
    named = [word for word in known if wanted in word]
    close = named[:3] or difflib.get_close_matches(wanted.upper() if wanted[:2] == "sf" else wanted, known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "`stayfinite rules` lists them all"
    raise UsageError(f"no rule {name!r}", fix=hint)


def family_of(rule: Rule) -> str:
    """The name of a rule's family."""
    return list(FAMILIES)[int(rule.code[2]) - 1]


def _rules_in(family: ModuleType) -> list[Rule]:
    found = [_rule_in(family, module.name) for module in iter_modules(family.__path__)]
    return [rule for rule in found if rule is not None]


@cache
def _rule_in(family: ModuleType, name: str) -> Rule | None:
    """The rule of a module, with its slug, page and judge; None for a shared module."""
    module = import_module(f"{family.__name__}.{name}")
    rule = getattr(module, "RULE", None)
    if not isinstance(rule, Rule):
        return None
    judge = getattr(module, "judge", rule.judge)
    return replace(rule, slug=name.replace("_", "-"), page=module.__doc__ or "", judge=judge)


def _holds(family: ModuleType, module: str) -> bool:
    return any(module == each.name for each in iter_modules(family.__path__))
