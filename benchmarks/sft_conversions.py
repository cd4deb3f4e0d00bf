"""A thousand plain unit-conversion questions, and ``stayfinite train sft`` on them in 15 minutes.

    python benchmarks/sft_conversions.py                  # SmolLM2-135M, defaults: half an hour on two cores
    python benchmarks/sft_conversions.py --only-questions # the files alone

"How many g is 2 kg?" -> 2000, without intermediate steps. The 200 held-out questions are of the same kind, but share no
conversion (number, unit, unit) with training. Within 5 % is right; an unparsable answer is a miss. Base and tuned model
get the same prompt.
"""

from __future__ import annotations

import json
import platform
import random
import resource
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
import tyro

from stayfinite.recipes.chat.questions import Question, write_questions
from stayfinite.recipes.running.records import RESULT
from stayfinite.recipes.settings import read_settings
from stayfinite.recipes.sft import Sft, settled, train

KINDS: dict[str, dict[tuple[str, str], int]] = {
    "length": {
        ("mm", "millimeters"): 1,
        ("cm", "centimeters"): 10,
        ("m", "meters"): 10**3,
        ("km", "kilometers"): 10**6,
    },
    "feet": {("in", "inches"): 1, ("ft", "feet"): 12, ("yd", "yards"): 36},
    "mass": {("mg", "milligrams"): 1, ("g", "grams"): 10**3, ("kg", "kilograms"): 10**6, ("t", "tonnes"): 10**9},
    "pounds": {("oz", "ounces"): 1, ("lb", "pounds"): 16},
    "volume": {("ml", "milliliters"): 1, ("cl", "centiliters"): 10, ("dl", "deciliters"): 100, ("l", "liters"): 10**3},
    "time": {("s", "seconds"): 1, ("min", "minutes"): 60, ("h", "hours"): 3600},
    "days": {("h", "hours"): 1, ("d", "days"): 24, ("wk", "weeks"): 168},
    "data": {("kB", "kilobytes"): 1, ("MB", "megabytes"): 10**3, ("GB", "gigabytes"): 10**6},
    "power": {("W", "watts"): 1, ("kW", "kilowatts"): 10**3, ("MW", "megawatts"): 10**6},
    "energy": {("J", "joules"): 1, ("kJ", "kilojoules"): 10**3},
    "money": {("ct", "cents"): 1, ("$", "dollars"): 100},
    "dozens": {("pcs", "pieces"): 1, ("doz", "dozens"): 12},
}
"""Units by kind, short and long name, each in multiples of the smallest."""
WORDINGS = (
    "How many {to} is {number} {of}?",
    "How many {to} are {number} {of}?",
    "Convert {number} {of} to {to}.",
    "What is {number} {of} in {to}?",
    "{number} {of} in {to}?",
)
LARGEST_FACTOR = 1000
LARGEST, DECIMALS = 1_000_000, 4
"""Largest answer and most decimals."""


class Conversion(NamedTuple):
    """What a question asks, independent of its wording."""

    number: str
    of: str
    to: str


def questions(count: int, seed: int, without: frozenset[Conversion] = frozenset()) -> dict[Conversion, Question]:
    """``count`` questions with distinct conversions, none of them in ``without``."""
    chance = random.Random(f"conversions {seed}")
    found: dict[Conversion, Question] = {}
    while len(found) < count:
        asked, question = _drawn(chance)
        if question is not None and asked not in without:
            found.setdefault(asked, question)
    return found


def _drawn(chance: random.Random) -> tuple[Conversion, Question | None]:
    units = KINDS[chance.choice(list(KINDS))]
    of, to = chance.sample(list(units), 2)
    number, written = _number(chance)
    answer = number * units[of] / units[to]
    asked = Conversion(str(number.normalize()), of[1], to[1])
    small, large = sorted((units[of], units[to]))
    exact = answer == round(answer, DECIMALS)
    if large > LARGEST_FACTOR * small or not exact or answer > LARGEST:
        return asked, None
    short = chance.random() < 0.5
    text = chance.choice(WORDINGS).format(number=written, of=of[not short], to=to[not short])
    plain = format(answer.normalize(), "f")
    return asked, Question(text=text, answer=plain)


def _number(chance: random.Random) -> tuple[Decimal, str]:
    """A number as people write it: 7, 45, 300, 1,500, 0.5, 2.25."""
    shape = chance.choice(("digit", "digit", "tens", "tens", "hundreds", "thousands", "tenths", "quarters"))
    if shape == "tenths":
        number = Decimal(chance.randrange(1, 200)) / 10
    elif shape == "quarters":
        number = Decimal(chance.randrange(1, 80)) / 4
    else:
        low, high, step = {"digit": (1, 10, 1), "tens": (10, 100, 1), "hundreds": (100, 1000, 10),
                           "thousands": (1000, 10_000, 100)}[shape]  # fmt: skip
        number = Decimal(chance.randrange(low, high, step))
    written = format(number.normalize(), "f")
    return number, f"{number:,}" if shape == "thousands" and chance.random() < 0.5 else written


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this benchmark."""

    directory: Path = Path("runs/sft_conversions")
    """Directory for questions and run."""
    rows: int = 1000
    held_out: int = 200
    minutes: float = 15.0
    only_questions: bool = False
    """Write the questions and stop."""


def main() -> None:
    """Write the questions, train with defaults, print the table."""
    options, flags = tyro.cli(Options, return_unknown_args=True)
    training = questions(options.rows, seed=0)
    held_out = questions(options.held_out, seed=1, without=frozenset(training))
    files = [options.directory / name for name in ("train.jsonl", "held_out.jsonl")]
    for file, found in zip(files, (training, held_out), strict=True):
        write_questions(found.values(), file)
        print(f"{len(found):,} questions in {file}")
    if options.only_questions:
        return
    asked = [
        "--train", str(files[0]), "--val", str(files[1]), "--model", "smollm2", "--minutes", str(options.minutes),
        "--output-dir", str(options.directory / "run"), *flags,
    ]  # fmt: skip
    config = read_settings(Sft, asked, "sft_conversions.py", settled)
    began = time.monotonic()
    result = train(config)
    seconds, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    record = json.loads((result.directory / RESULT).read_text(encoding="utf-8"))
    processor = used.ru_utime + used.ru_stime
    print(
        f"\n{config.model}, {options.rows:,} questions, {result.steps:,} steps, {config.minutes} minutes of training;"
    )
    print(f"{seconds:.0f} s in all, {processor:.0f} s of processor time on {torch.get_num_threads()} threads,")
    print(f"{used.ru_maxrss / 2**20:.1f} GiB, {platform.machine()}, torch {torch.__version__}, transformers "
          f"{transformers.__version__}\n")  # fmt: skip
    print("| | accuracy | answer rate | loss of the right answer | questions |\n|---|---|---|---|---|")
    asked_of = (("base", record["base"]), ("tuned", record["scores"]))
    for row, scores in (each for each in asked_of if each[1] is not None):
        print(f"| {row} | {scores['accuracy']:.3f} | {scores['answer_rate']:.3f} | {scores['loss']:.3f} "
              f"| {scores['questions']:,} |")  # fmt: skip


if __name__ == "__main__":
    main()
