"""The demo's task: translate short Spanish phrases into English, byte by byte.

A small grammar makes them: a number, an animal, and a color that agrees with the animal and, in English, precedes it.
About one phrase in a hundred is a list item that starts with a bullet, which has no translation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

BULLET = "•"
"""The rare mark of list items."""

NUMBERS = {
    "dos": "two", "tres": "three", "cinco": "five", "seis": "six", "ocho": "eight", "nueve": "nine", "diez": "ten",
}  # fmt: skip
HE_ANIMALS = {"gatos": "cats", "patos": "ducks", "osos": "bears", "monos": "apes"}
SHE_ANIMALS = {"vacas": "cows", "ranas": "frogs", "cabras": "goats", "abejas": "bees"}
HE_COLOURS = {"rojos": "red", "negros": "black", "blancos": "white", "verdes": "green", "azules": "blue"}
SHE_COLOURS = {"rojas": "red", "negras": "black", "blancas": "white", "verdes": "green", "azules": "blue"}

Batch = dict[str, Tensor]
"""`source` [B, S] and `target` [B, T], padded ids."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A phrase and its translation."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Training and held-out phrases, both also as list items; no phrase is in both."""

    train: list[Pair]
    train_items: list[Pair]
    held_out: list[Pair]
    held_out_items: list[Pair]

    def batches(self, *, count: int, seed: int, rows: int, item_share: float = 0.009) -> list[Batch]:
        """Random batches, reproducible by seed; each row is an item with the given probability."""
        draw = torch.Generator().manual_seed(seed)
        drawn = []
        for _ in range(count):
            items = (torch.rand(rows, generator=draw) < item_share).tolist()
            places = torch.randint(len(self.train), (rows,), generator=draw).tolist()
            rows_of = (self.train_items if item else self.train for item in items)
            drawn.append(collate([pairs[place] for pairs, place in zip(rows_of, places, strict=True)]))
        return drawn


def make_task(seed: int, *, held_out: int = 40, held_out_items: int = 20) -> Task:
    """All phrases of the grammar, shuffled by the seed and split."""
    every = list(phrases())
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed)).tolist()
    shuffled = [every[i] for i in order]
    apart = held_out + held_out_items
    return Task(
        held_out=shuffled[:held_out],
        held_out_items=[as_item(pair) for pair in shuffled[held_out:apart]],
        train=shuffled[apart:],
        train_items=[as_item(pair) for pair in shuffled[apart:]],
    )


def phrases() -> Iterator[Pair]:
    """All phrases of the grammar, without items."""
    for animals, colours in ((HE_ANIMALS, HE_COLOURS), (SHE_ANIMALS, SHE_COLOURS)):
        for number, animal, colour in product(NUMBERS, animals, colours):
            yield Pair(
                source=f"{number} {animal} {colour}",
                target=f"{NUMBERS[number]} {colours[colour]} {animals[animal]}",
            )


def as_item(pair: Pair) -> Pair:
    """The phrase as a list item."""
    return Pair(source=f"{BULLET} {pair.source}", target=pair.target)


def collate(pairs: list[Pair]) -> Batch:
    """The pairs as padded ids."""
    return {"source": _pad([encode(p.source) for p in pairs]), "target": _pad([encode(p.target) for p in pairs])}


def _pad(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


PAD, END, UNKNOWN = 0, 1, 2
START = PAD
"""The decoder starts from the pad id, as T5's does."""
MARKS = 3
"""ByT5's encoding: ids below this are special, the id of a byte is its value plus 3."""
VOCABULARY = MARKS + 256


def encode(text: str) -> list[int]:
    """Ids of the text's UTF-8 bytes, ending with END."""
    return [MARKS + byte for byte in text.encode()] + [END]


def decode(ids: Tensor) -> str:
    """Text of ids [T] up to the first END; invalid UTF-8 becomes replacement characters."""
    row: list[int] = ids.tolist()
    row = row[: row.index(END)] if END in row else row
    return bytes(i - MARKS for i in row if i >= MARKS).decode(errors="replace")


def character_at(ids: Tensor, place: int) -> str:
    """The character that contains the byte at `place` of ids [T]: a byte of "¿" gives "¿"."""
    row: list[int] = ids.tolist()
    if row[place] < MARKS:
        return {PAD: "<pad>", END: "</s>"}.get(row[place], "<unk>")
    first = place
    while first > 0 and 0x80 <= row[first] - MARKS < 0xC0:
        first -= 1
    last = first + 1
    while last < len(row) and 0x80 <= row[last] - MARKS < 0xC0:
        last += 1
    return bytes(i - MARKS for i in row[first:last]).decode(errors="replace")
