"""Built-in task: temple records in an invented language, with English translations.

Generated from scratch. The language is realistic: verb last, cases and number as endings, composed numerals, another
word order.
"""

import random
from dataclasses import dataclass

NOUNS = {
    "sheep": "udu", "ox": "gar", "goat": "masu", "donkey": "ansh", "loaf": "nidu", "jar": "dugi", "garment": "tuga",
    "basket": "pisal", "brick": "sige", "spear": "shuku", "lamp": "nuri", "ring": "har", "boat": "magu",
    "plough": "apin",
}  # fmt: skip
PLURALS = {"sheep": "sheep", "ox": "oxen", "loaf": "loaves"}
PEOPLE = {
    "king": "lugar", "scribe": "dubsa", "priest": "sanga", "shepherd": "sipa", "merchant": "damga", "farmer": "engar",
    "weaver": "ishpar", "guard": "enud", "queen": "nina", "builder": "shidim",
}  # fmt: skip
PLACES = {
    "temple": "eku", "palace": "egal", "harbour": "karu", "field": "asha", "gate": "kanu", "garden": "kiru",
    "store": "ganu", "bridge": "tishu",
}  # fmt: skip
QUALITIES = {"old": "libir", "new": "gibil", "great": "galu", "small": "tura", "white": "babar", "black": "giggi"}
VERBS = {
    ("gives", "gave", "will give"): "sum", ("brings", "brought", "will bring"): "tum",
    ("takes", "took", "will take"): "dab", ("counts", "counted", "will count"): "shid",
    ("sells", "sold", "will sell"): "shan", ("hides", "hid", "will hide"): "dun",
}  # fmt: skip
TENSES = ("i", "mu", "he")
"""Prefixes of present, past and future."""
SEASONS = {"in spring": "buruda", "in winter": "entenda", "at harvest": "shegurda", "at night": "gida"}
UNITS = ("", "dis", "min", "esh", "lim", "ia", "ash", "imin", "usu", "ilim")
"""One to nine; `-u` makes tens."""
ENGLISH_UNITS = (
    "", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
RELATIONS = {"dab": ("from", "ta"), "dun": ("from", "ta"), "shid": ("for", "ra")}
"""English preposition and ending of a verb's recipient; `to` and `-ra` by default."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A text and its translation."""

    source: str
    target: str
    group: str = ""


def store_records(count: int, seed: int = 0) -> list[Pair]:
    """``count`` different records with translations."""
    chance = random.Random(seed)
    pairs: dict[str, Pair] = {}
    while len(pairs) < count:
        pair = _record(chance)
        pairs.setdefault(pair.source, pair)
    return list(pairs.values())


def _record(chance: random.Random) -> Pair:
    who, who_word = chance.choice(list(PEOPLE.items()))
    verb, stem = chance.choice(list(VERBS.items()))
    tense = chance.randrange(3)
    thing, thing_word = _things(chance)
    english, own = [f"the {who}", verb[tense], thing], [f"{who_word}e", thing_word]
    if chance.random() < 0.5:
        other, other_word = chance.choice([item for item in PEOPLE.items() if item[0] != who])
        relation, ending = RELATIONS.get(stem, ("to", "ra"))
        english.append(f"{relation} the {other}")
        own.append(f"{other_word}{ending}")
    if chance.random() < 0.6:
        place, place_word = chance.choice(list(PLACES.items()))
        english.append(f"at the {place}")
        own.insert(1, f"{place_word}ak")
    if chance.random() < 0.4:
        season, season_word = chance.choice(list(SEASONS.items()))
        english.append(season)
        own.insert(0, season_word)
    return Pair(" ".join([*own, f"{TENSES[tense]}{stem}"]), " ".join(english) + ".")


def _things(chance: random.Random) -> tuple[str, str]:
    noun, word = chance.choice(list(NOUNS.items()))
    number = chance.choice((1, 1, *range(2, 100)))
    quality = chance.choice((None, *QUALITIES))
    if number == 1:
        counted = "an" if (quality or noun)[0] in "aeiou" else "a"
        english, own = noun, [word]
    else:
        counted = _english_number(number)
        english, own = PLURALS.get(noun, f"{noun}s"), [f"{word}mesh", _own_number(number)]
    if quality:
        own.append(f"{QUALITIES[quality]}na")
    return " ".join(part for part in (counted, quality, english) if part), " ".join(own)


def _english_number(number: int) -> str:
    tens, units = divmod(number, 10)
    if number < len(ENGLISH_UNITS):
        return ENGLISH_UNITS[number]
    return f"{ENGLISH_TENS[tens]} {ENGLISH_UNITS[units]}".strip()


def _own_number(number: int) -> str:
    tens, units = divmod(number, 10)
    return " ".join(word for word in (f"{UNITS[tens]}u" if tens else "", UNITS[units]) if word)
