"""The questions of a run and their rows of tokens: read, or built in (unit conversions, generated)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import permutations
from typing import Any, Literal, cast

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.bases import is_size
from stayfinite.recipes.chat.prompts import Example, Prompting
from stayfinite.recipes.chat.questions import Columns, Question, drawn_for, overlap, read_questions, split


def questions_of(config: Any, say: Callable[[str], None]) -> tuple[list[Question], list[Question]]:
    """Questions to train on and to evaluate with: read, split, or built in.

    Raises:
        UsageError: a file or column is missing, a row is broken, or nothing is left on one side.
    """
    columns = Columns.of(config)
    if not config.train:
        training = conversions(task_of(config), config.rows, held_out=False, seed=config.seed)
        validation = conversions(task_of(config), config.held_out, held_out=True, seed=config.seed)
    elif config.val:
        training, validation = read_questions(config.train, columns, say), read_questions(config.val, columns, say)
    else:
        training, validation = split(read_questions(config.train, columns, say), config.val_share)
    refuse_none(training, validation)
    say(f"{len(training):,} questions to train on, {len(validation):,} held out")
    if twice := overlap(training, validation):
        say(f"warning: {len(twice):,} held-out questions are in the training data: {twice[0].text[:80]!r}")
    return training, validation


def refuse_none(training: Sequence[Question], validation: Sequence[Question]) -> None:
    """Look whether there are questions on both sides.

    Raises:
        UsageError: nothing is left on one side.
    """
    for name, found in (("train on", training), ("evaluate with", validation)):
        if not found:
            raise UsageError(f"no question is left to {name}", fix="more rows, another --val-share, or --val FILE")


def task_of(config: Any) -> Task:
    """The built-in task: as asked for, or the one that a model of this size can learn."""
    if config.task != "auto":
        return cast(Task, config.task)
    return "metric" if is_size(config.model) else "units"


def examples_of(
    config: Any,
    prompting: Prompting,
    questions: Sequence[Question],
    say: Callable[[str], None],
    held_out: Sequence[Question] = (),
) -> list[Example]:
    """The questions as rows of training; says how many had to be cut.

    Raises:
        UsageError: a row does not fit, held-out ones included: now, and not after an epoch.
    """
    prompting.examples(held_out, config.max_length)
    examples = prompting.examples(questions, config.max_length)
    cut = sum(example.cut for example in examples)
    if cut:
        say(
            f"{cut:,} questions ({cut / len(examples):.1%}) are truncated to --max-length {config.max_length}; "
            "answers are not"
        )
    return examples


Task = Literal["metric", "units"]
"""`metric` goes from a unit to a smaller one and is for models that are built here; `units` is all of it, and shows its
work."""

METRIC: dict[str, dict[str, float]] = {
    "length": {"mm": 1e-3, "cm": 1e-2, "m": 1.0, "km": 1e3},
    "mass": {"mg": 1e-3, "g": 1.0, "kg": 1e3},
    "volume": {"ml": 1e-3, "cl": 1e-2, "l": 1.0},
    "power": {"W": 1.0, "kW": 1e3, "MW": 1e6},
}
UNITS: dict[str, dict[str, float]] = {
    "length": {
        "millimetres": 1e-3, "centimetres": 1e-2, "metres": 1.0, "kilometres": 1e3, "inches": 0.0254, "feet": 0.3048,
        "yards": 0.9144, "miles": 1609.344,
    },
    "mass": {"grams": 1e-3, "kilograms": 1.0, "tonnes": 1e3, "ounces": 0.028349523125, "pounds": 0.45359237},
    "volume": {
        "millilitres": 1e-3, "litres": 1.0, "US cups": 0.2365882365, "US pints": 0.473176473, "US gallons": 3.785411784,
    },
    "time": {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0},
    "speed": {"metres per second": 1.0, "km/h": 1 / 3.6, "mph": 0.44704, "knots": 1852 / 3600},
    "area": {"square metres": 1.0, "hectares": 1e4, "acres": 4046.8564224, "square kilometres": 1e6},
    "energy": {"joules": 1.0, "kilojoules": 1e3, "kilocalories": 4184.0, "kilowatt-hours": 3.6e6},
}  # fmt: skip
WORDINGS = (
    "How many {to} are {number} {of}?",
    "Convert {number} {of} to {to}.",
    "What is {number} {of} in {to}?",
    "Express {number} {of} in {to}.",
    "{number} {of} is how many {to}?",
)
SMALLEST, LARGEST = 1e-3, 1e7
"""Answers beyond are not asked for: nobody says a millimetre in miles."""
HELD_OUT = 0.15
"""Share of the digit strings that only held-out questions have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """From one unit to another: ``answer = number * factor + offset``."""

    of: str
    to: str
    factor: float
    offset: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What the questions of a task look like."""

    least: int
    """The smallest number before it is scaled; the largest is 999."""
    scales: tuple[int, ...]
    """Powers of ten that it may be scaled with."""
    wordings: tuple[str, ...]
    shown: bool
    """Whether the way to the answer is shown."""


FORMS: dict[Task, Form] = {
    # Three digits, to which zeros are appended: what a model with fresh weights learns in minutes.
    "metric": Form(least=100, scales=(0,), wordings=WORDINGS[:1], shown=False),
    "units": Form(least=1, scales=(-2, -1, 0, 1), wordings=WORDINGS, shown=True),
}


def conversions(task: Task, count: int, *, held_out: bool, seed: int = 0) -> list[Question]:
    """So many different questions, or all there are; held-out ones and the others have no number in common."""
    chance = random.Random(f"{task} {held_out} {seed}")
    form = FORMS[task]
    pairs = list(_pairs(task))
    numbers = [digits for digits in range(form.least, 1000) if digits % 10 and is_held_out(str(digits)) == held_out]
    found: dict[str, Question] = {}
    for _ in range(50 * count):
        if len(found) == count:
            break
        if (question := _question(chance, form, pairs, numbers)) is not None:
            found.setdefault(question.text, question)
    return list(found.values())


def is_held_out(number: str) -> bool:
    """Whether only held-out questions have this number. 4.7, 47 and 470 are one: their digits decide."""
    return drawn_for(number.replace(".", "").strip("0")) < HELD_OUT


def _pairs(task: Task) -> Iterator[Conversion]:
    for units in (METRIC if task == "metric" else UNITS).values():
        for of, to in permutations(units, 2):
            if task == "units" or units[of] > units[to]:
                yield Conversion(of=of, to=to, factor=units[of] / units[to])
    if task == "units":
        yield Conversion(of="degrees Celsius", to="degrees Fahrenheit", factor=1.8, offset=32.0)
        yield Conversion(of="degrees Fahrenheit", to="degrees Celsius", factor=1 / 1.8, offset=-32 / 1.8)


def _question(
    chance: random.Random, form: Form, pairs: Sequence[Conversion], numbers: Sequence[int]
) -> Question | None:
    pair = chance.choice(pairs)
    number = Decimal(chance.choice(numbers)).scaleb(chance.choice(form.scales))
    answer = float(number) * pair.factor + pair.offset
    if not SMALLEST <= abs(answer) <= LARGEST:
        return None
    text = chance.choice(form.wordings).format(number=plain(float(number)), of=pair.of, to=pair.to)
    return Question(text=text, answer=plain(answer), reasoning=_way(pair, number) if form.shown else "")


def _way(pair: Conversion, number: Decimal) -> str:
    """The way to the answer: each digit at its place converted, then their sum.

    A digit of a unit is something to know by heart, and a sum is something that a small model can do; a product of two
    long numbers in one go is not.
    """
    size = number.adjusted()
    places = [Decimal(digit).scaleb(size - place) for place, digit in enumerate(number.as_tuple().digits) if digit]
    parts = [(plain(float(part)), plain(float(part) * pair.factor)) for part in places]
    steps = [f"{part} is {worth}" for part, worth in parts]
    steps += [f"and {plain(pair.offset)}"] if pair.offset else []
    return ", ".join(steps) + ":"


def plain(number: float, digits: int = 3) -> str:
    """A number with so many significant digits, without an exponent or zeros that say nothing."""
    written = format(Decimal(f"{number:.{digits - 1}e}"), "f")
    return written.rstrip("0").rstrip(".") if "." in written else written
