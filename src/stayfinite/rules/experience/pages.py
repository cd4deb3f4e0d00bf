"""How much a text speaks of what each rule's page speaks of.

The words of the pages are kept in `pages.json`, because reading all pages takes longer than the rest of a diagnosis;
`python -m benchmarks.failures.learning --pages` writes them again.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files

from stayfinite.rules.experience.features import words
from stayfinite.rules.registry import all_rules
from stayfinite.rules.rule import SECTIONS, Rule


def likeness(found: Collection[str]) -> dict[str, float]:
    """The cosine between these words and each page, by cause; a word counts by how few pages have it."""
    rarity, pages = _pages()
    asked = rarity.keys() & found
    size = math.hypot(*(rarity[word] for word in asked)) or 1.0
    return {
        cause: sum(told[word] * rarity[word] for word in told.keys() & asked) / size for cause, told in pages.items()
    }


def shared(found: Collection[str], cause: str) -> list[str]:
    """The words that a text and the page of a cause have in common, the rarest first."""
    told = _pages()[1][cause]
    return sorted(told.keys() & found, key=lambda word: (-told[word], word))


@cache
def _pages() -> tuple[Mapping[str, float], Mapping[str, Mapping[str, float]]]:
    """How rare each word is among pages, and by cause that of its page's words, to a length of 1."""
    text = files("stayfinite.rules.experience").joinpath("pages.json").read_text(encoding="utf-8")
    pages = {cause: told.split() for cause, told in json.loads(text).items()}
    counted = Counter(word for told in pages.values() for word in told)
    rarity = {word: math.log(len(pages) / count) for word, count in counted.items()}
    sizes = {cause: math.hypot(*(rarity[word] for word in told)) for cause, told in pages.items()}
    return rarity, {cause: {word: rarity[word] / sizes[cause] for word in told} for cause, told in pages.items()}


def words_of_pages() -> dict[str, str]:
    """What `pages.json` keeps: the words of each cause's page."""
    return {rule.slug: " ".join(sorted(_words_of(rule))) for rule in all_rules() if rule.severity != "info"}


def _words_of(rule: Rule) -> set[str]:
    """Those of its name, title, fix and page, without what the page says of false alarms."""
    sections = (rule.section(title) for title in SECTIONS[:-1])
    return words([rule.slug.replace("-", " "), rule.title, rule.fix, *sections])
