"""Built-in text: a traveler's notes on forty invented towns, and small sums.

Generated from scratch. The same facts appear in many sentences, so that a gap can be filled from the others.
"""

import random
from dataclasses import dataclass

BEGINNINGS = ("Vel", "Tor", "Ash", "Mir", "Kel", "Dun", "Bar", "Sel", "Or", "Lan")
ENDINGS = ("mar", "una", "holt", "wick")
RIVERS = ("Issa", "Tamar", "Orne", "Wend", "Lys", "Arrow", "Dove", "Sorga")
CRAFTS = {
    "weavers": "cloth", "potters": "jars", "smiths": "knives", "bakers": "bread", "coopers": "barrels",
    "glaziers": "lamps", "carvers": "spoons", "dyers": "scarves", "tanners": "boots", "printers": "books",
}  # fmt: skip
FRUITS = ("pears", "figs", "plums", "cherries", "quinces", "apples", "grapes", "melons")
COLOURS = ("red", "blue", "green", "white", "yellow", "black", "grey", "brown")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
BEASTS = ("heron", "fox", "otter", "owl", "stag", "hare", "swan", "badger")
SEASONS = ("spring", "summer", "autumn", "winter")
NUMBERS = (
    "nought", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Town:
    """Facts about a town."""

    name: str
    river: str
    craft: str
    fruit: str
    colour: str
    beast: str
    day: str
    season: str
    neighbour: str

    def facts(self) -> dict[str, str]:
        """Facts by the names used in sentences."""
        found = {field: getattr(self, field) for field in self.__slots__}
        return found | {"ware": CRAFTS[self.craft]}


SENTENCES = (
    "The town of {name} stands on the river {river}.",
    "Whoever follows the {river} comes to {name} before nightfall.",
    "In {name} the {craft} make {ware} all year round.",
    "The best {ware} are made by the {craft} of {name}.",
    "On the flag of {name} there is a {beast} on a {colour} field.",
    "The {beast} on the {colour} flag is the sign of {name}.",
    "Market day in {name} is {day}, and people come from {neighbour}.",
    "People of {neighbour} go to {name} every {day} to buy {ware}.",
    "The gardens of {name} are full of {fruit} in {season}.",
    "In {season} they eat {fruit} in {name} and sing by the river {river}.",
    "The houses of {name} are painted {colour}, because the {craft} like it so.",
    "From {name} it is a day's walk along the {river} to {neighbour}.",
    "A {beast} was seen in the gardens of {name} on {day}.",
    "Every {day} in {season} the {craft} of {name} rest and eat {fruit}.",
    "The old road from {neighbour} to {name} crosses the river {river}.",
    "They sell {fruit} and {ware} on the market of {name}.",
)


def towns(seed: int = 0) -> list[Town]:
    """The forty towns."""
    chance = random.Random(seed)
    names = [begin + end for begin in BEGINNINGS for end in ENDINGS]
    return [
        Town(
            name=name, river=chance.choice(RIVERS), craft=chance.choice(list(CRAFTS)), fruit=chance.choice(FRUITS),
            colour=chance.choice(COLOURS), beast=chance.choice(BEASTS), day=chance.choice(DAYS),
            season=chance.choice(SEASONS), neighbour=names[(number + 7) % len(names)],
        )
        for number, name in enumerate(names)
    ]  # fmt: skip


def travel_notes(seed: int = 0) -> list[str]:
    """All sentences of all towns, pairs of them, and sums of small numbers, shuffled."""
    chance = random.Random(seed)
    told = [[sentence.format(**town.facts()) for sentence in SENTENCES] for town in towns(seed)]
    single = [sentence for sentences in told for sentence in sentences]
    pairs = [" ".join(chance.sample(sentences, 2)) for sentences in told for _ in range(40)]
    sums = [
        form.format(NUMBERS[one].capitalize(), NUMBERS[two], NUMBERS[one + two])
        for one in range(1, 11)
        for two in range(1, 11)
        for form in ("{} and {} are {}.", "{} apples and {} apples make {} apples.")
    ]
    notes = list(dict.fromkeys([*single, *pairs, *sums]))
    chance.shuffle(notes)
    return notes
