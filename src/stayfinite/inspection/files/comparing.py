"""`stayfinite diff A B`: two plans of any kind, what differs for stability first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stayfinite.core.settings import Expression, Setting
from stayfinite.errors import UsageError
from stayfinite.inspection.files.learning_rate import batch_of
from stayfinite.inspection.files.matters import ACCUMULATION, BATCH, MATTERS, PRECISION, PRECISION_MEANS, Matter
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan
from stayfinite.inspection.files.sources import read_sources
from stayfinite.rules.known import is_on, number_in

_CALLED = re.compile(r"(?:self\.)?[a-z_]\w*(?:\.\w+)*\.\w+")
"""`loss.backward`, `trainer.train`: a method that is called, which code has and configs do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A value as one of the two has it."""

    name: str
    value: Any
    where: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        value = (
            self.value if isinstance(self.value, (bool, int, float, str, list, dict, type(None))) else str(self.value)
        )
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        return {"name": self.name, "value": value, "where": self.where}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting that differs."""

    name: str
    left: Side | None
    """None where this side does not set it."""
    right: Side | None
    means: str = ""
    """What it means for stability; empty for settings that have nothing to do with it."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        sides = {name: side.to_json() if side else None for name, side in (("left", self.left), ("right", self.right))}
        return {"name": self.name, **sides, "means": self.means}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two plans have in common and what not."""

    left: str
    right: str
    training: tuple[Difference, ...]
    """What both set, differently, and matters for stability, the weightiest first."""
    other: tuple[Difference, ...]
    """What both set, differently, and is of another kind: paths, logging."""
    one_sided: tuple[Difference, ...]
    """What only one of them sets; what matters for stability first."""
    equal: int

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.training or self.other or self.one_sided)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        parts = {name: [each.to_json() for each in getattr(self, name)] for name in ("training", "other", "one_sided")}
        return {"same": self.same, "left": self.left, "right": self.right, **parts, "equal": self.equal}


def compare(left: str, right: str) -> Comparison:
    """Hold two files or commands against each other. Raises UsageError for what cannot be read."""
    plans = tuple(Plan(sources=read_sources([each])) for each in (left, right))
    for plan, name in zip(plans, (left, right), strict=True):
        if not plan.settings:
            raise UsageError(f"no setting was found in {name}", fix="name a config, a script, a notebook or a command")
    taken: tuple[set[int], set[int]] = (set(), set())
    found = [*_precision(plans, taken), *_matters(plans, taken), *_rest(plans, taken)]
    both = [each for each in found if each.left is not None and each.right is not None]
    differing = [each for each in both if not _same(each.left, each.right)]
    return Comparison(
        left=plans[0].sources[0].name,
        right=plans[1].sources[0].name,
        training=tuple(each for each in differing if each.means),
        other=tuple(each for each in differing if not each.means),
        one_sided=tuple(sorted((each for each in found if each not in both), key=lambda each: not each.means)),
        equal=len(both) - len(differing),
    )


def _precision(plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    """The number format first, by whatever switch it is asked for."""
    known = [plan.precision for plan in plans]
    for plan, ids in zip(plans, taken, strict=True):
        ids.update(id(each) for each in plan.settings if PRECISION.fullmatch(last_step(each)))
        ids.update(id(each) for each in plan.settings if re.search(r"(?:fp16|bf16)\.enabled$", each.name))
    if all(each is None for each in known):
        return
    formats = ["fp32" if each is None else each.value for each in known]
    names = {"" if each is None else _last(each.text.partition(":")[0]) for each in known}
    sides = []
    for each, number_format in zip(known, formats, strict=True):
        if each is None:
            sides.append(Side(name="", value="not set", where=""))
            continue
        name, _, written = each.text.strip().partition(":")
        # The switch as written where both have the same one; else the format that it comes to.
        plain = len(names) == 1 and formats[0] != formats[1]
        sides.append(Side(name=name, value=written.strip() if plain else number_format, where=each.where))
    if formats[0] == formats[1]:  # two spellings of one format are no difference
        sides = [Side(name=side.name, value=formats[0], where=side.where) for side in sides]
    means = PRECISION_MEANS.get(frozenset(formats), "what is finite in one format may not be in the other")
    called = names.pop() if len(names) == 1 else "precision"
    yield Difference(name=called, left=sides[0], right=sides[1], means=means)


def _matters(plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    for index, matter in enumerate(MATTERS):
        if index == 3:  # after rate, warmup and clipping
            yield from _batch(plans, taken)
        yield from _matter(matter, plans, taken)


def _matter(matter: Matter, plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    found = [_first(plan, matter.names, ids) for plan, ids in zip(plans, taken, strict=True)]
    if all(each is None for each in found):
        return
    sides = [None if each is None else _side(each) for each in found]
    means = matter.means
    numbers = [None if each is None else number_in(each.value) for each in found]
    if matter.higher and all(value is not None and math.isfinite(value) and value > 0 for value in numbers):
        low, high = sorted(value for value in numbers if value is not None)
        means = matter.higher.format(ratio=f"{high / low:.3g}")
    yield Difference(name=_called(matter.key, sides), left=sides[0], right=sides[1], means=means)


def _batch(plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    """Rows in an update, from whatever parts they are given."""
    sides: list[Side | None] = []
    rows_an_update = []
    for plan, ids in zip(plans, taken, strict=True):
        rows, steps = _first(plan, BATCH, ids), _first(plan, ACCUMULATION, ids)
        whole = batch_of(plan)
        if rows is None or whole is None:
            sides.append(None)
            continue
        parts = f"{rows.value} x {steps.value}" if steps is not None and number_in(steps.value) else ""
        rows_an_update.append(whole)
        sides.append(Side(name=last_step(rows), value=f"{whole:g} ({parts})" if parts else whole, where=rows.where))
    if len(rows_an_update) == 2 and rows_an_update[0] == rows_an_update[1]:  # in other portions, the same update
        sides = [Side(name=side.name, value=rows_an_update[0], where=side.where) for side in sides if side is not None]
    if any(side is not None for side in sides):
        means = "a smaller batch has noisier gradients: the rate should fall with it, and spikes come more often"
        yield Difference(name="batch (rows an update)", left=sides[0], right=sides[1], means=means)


def _first(plan: Plan, names: tuple[str, ...], taken: set[int]) -> Setting | None:
    """The setting that tells it: by the order of the names, a known value before a default, before an expression."""
    by_name: dict[str, list[Setting]] = {}
    for setting in plan.settings:
        if id(setting) not in taken:
            by_name.setdefault(last_step(setting), []).append(setting)
    found = [each for name in names for each in by_name.get(name, []) if not isinstance(each.value, dict)]
    taken.update(id(each) for each in found)
    doubt = {"default": 1}
    return min(
        found, key=lambda each: 2 if isinstance(each.value, Expression) else doubt.get(each.kind, 0), default=None
    )


def _rest(plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    """Everything else, by its name: whole path first, then the last step where it is the only one of that name."""
    left, right = (_by_name(plan, ids) for plan, ids in zip(plans, taken, strict=True))
    for name in dict.fromkeys((*left, *right)):
        one, other = left.get(name), right.get(name)
        yield Difference(
            name=name, left=None if one is None else _side(one), right=None if other is None else _side(other)
        )


def _by_name(plan: Plan, taken: set[int]) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for setting in plan.settings:
        call = setting.value is True and _CALLED.fullmatch(setting.name) and setting.kind in ("script", "notebook")
        if id(setting) not in taken and not call and not isinstance(setting.value, Expression):
            code = setting.kind in ("script", "notebook", "command", "default") or "." not in setting.name
            found.setdefault(last_step(setting) if code else setting.plain, setting)
    return found


def _side(setting: Setting) -> Side:
    return Side(name=setting.name, value=setting.value, where=setting.where)


def _called(key: str, sides: list[Side | None]) -> str:
    """What it is called: the name that both use, else our own."""
    names = {_last(side.name) for side in sides if side is not None}
    return names.pop() if len(names) == 1 else key


def _last(name: str) -> str:
    return re.split(r"[./]", name.strip())[-1].lstrip("-")


def _same(one: Side | None, other: Side | None) -> bool:
    if one is None or other is None:
        return False
    left, right = one.value, other.value
    if isinstance(left, bool) or isinstance(right, bool):
        return is_on(left) is not None and is_on(left) == is_on(right)
    numbers = [
        number_in(each) if isinstance(each, (int, float)) or _whole_number(each) else None for each in (left, right)
    ]
    if None not in numbers:
        return numbers[0] == numbers[1] or all(math.isnan(each) for each in numbers if each is not None)
    return left == right or str(left).strip().lower() == str(right).strip().lower()


def _whole_number(value: Any) -> bool:
    return (
        isinstance(value, str)
        and re.fullmatch(r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?", value.strip(), re.IGNORECASE) is not None
    )
