"""Numbers in a line, and the names beside them: `loss: 2.5`, `lr=1e-4`, `'loss': '3.8'`, `loss 2.6`.

A number may be `2.5`, `9.150E-06`, `1,234.5`, `nan`, `-inf`, `Infinity`, `nan.0`, `-nan(ind)`, `.nan`.
"""

from __future__ import annotations

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import column_of, is_loss_part, plain

Pair = tuple[str, int, int]
"""A name, and where its number starts and ends."""
NUMBER = (
    r"(?:[-+]?1\.\#(?:QNAN|SNAN|IND|INF)0*+"
    r"|[-+]?(?:\d{1,3}(?:,\d{3})++(?:\.\d++)?(?![\d,]*\d)|(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?+)"
    r"(?:(?=(?:ms|s|m|h|x|it|K|k|M|MB|G|GB|GF|GiB|MiB|TFLOPs)(?![A-Za-z\d_]))|(?![\w]|\.\d|[.-][A-Za-z]))"
    r"|[-+]?\.?(?i:nan|infinity|inf)(?:16|32|64)?+(?:\.0++|\((?:s?nan|ind)\))?+(?!\w|[.-]\w))"
)
"""A regular expression without groups. A number ends at a word boundary or before a unit (`819.72ms`, `14.12%`), so
`llama-7b` and `1.2.3` do not match. Lightning writes `nan.0`; C libraries have their own spellings."""

_ODD = lazy_regex(
    r"([-+]?)\.?(?:(nan|inf(?:inity)?)(?:16|32|64|\.0+|\((?:s?nan|ind)\))?|1\.#(?:(qnan|snan|ind)|inf)0*)",
    re.IGNORECASE,
)


def number(text: str) -> float:
    """Parse a number. Raises ``ValueError`` if the text is not one."""
    try:
        return float(text)
    except ValueError:
        odd = _ODD.fullmatch(text)
        if odd is None:
            return float(text.replace(",", ""))
    if odd[3] or (odd[2] or "").lower() == "nan":
        return math.nan
    return -math.inf if odd[1] == "-" else math.inf


_SEPARATED = lazy_regex(
    rf"[:=]\s{{0,40}}\[{{0,2}}(?:[A-Za-z_][\w.]{{0,16}}\()?[\[('\"]{{0,3}}\s{{0,9}}({NUMBER})(?!:\d|\s?\*\s?[A-Za-z]|\s=\s)"
)
_SHARE = lazy_regex(rf"\s?\(({NUMBER})\s?%\)")
_SCORED = lazy_regex(r"top[-_ ]?\d|acc|prec|recall|f1", re.IGNORECASE)
"""`Top1: 4913.281 (68.240%)`: a sum of shares, and the share."""
_SOURCE = lazy_regex(r"\.(?:py|cc?|cpp|cxx|cuh?|h|hpp|rs|go|ipynb)$|\s\d+\.\d+\w*$")
_NAME = lazy_regex(r"([A-Za-z_][\w./%@+#\- ]*+)['\"]?\s*$")
_ENDS_NAME = lazy_regex(r"[,|;:{}()\[\]<>=\t]|\s-\s|\s{2,}|(?<=\d)(?<!\btop[ -]\d)\s", re.IGNORECASE)
_PLACED = lazy_regex(r"(\b(?:[a-z]+ ){0,2}(?:loss|cost))\s+(?:at|after|in|for)\s+[a-z]{2,12}:?\s+\d+$", re.IGNORECASE)
"""`Loss at step 20`, `loss for step: 20 =`: the step is no part of the name."""
_OF = lazy_regex(r"(?<=\w)\s?\([A-Za-z][\w ]{0,16}\)$")
"""`loss (batch)=0.5`: what is in parentheses is no part of the name."""
_INDEX = lazy_regex(r"(?<=\w)\s?\[\s{0,9}\d{1,9}\s{0,9}\]$")
"""`train_loss[ 6510 ]: 1.5`: where it was measured."""
_BARE_NAMES = (
    r"(?:(?:train(?:ing)?|val(?:id(?:ation)?)?|eval|test|total|lm|nll)[ _])?loss|(?:avg|average|ave|"
    r"mean)\.?[ _](?:\w{2,20}[ _])?loss|moving ave loss|[a-z]{2,20}(?:ion|ness|ctc|kld?|box|cls|mask)[ _]loss|"
    r"(?<!time )(?<!batch )(?<!reader )cost(?!\s+\S+\s?(?:s|ms|sec\w*|min\w*|h|hours?|m)\b)|ep(?=\. )|up(?=\. )|"
    r"grad(?:ient)?[ _]?norm|gnorm|norm|lr|learning[ _]rate|loss[ _]scale|(?:global[ _]?)?steps?|iter(?:ation)?s?|"
    r"epoch|ep|batch|num_updates|skipped|(?:(?:train|valid|val|test|eval)[ _]?)?(?:ppl|perplexity|"
    r"(?:acc(?:uracy)?(?:@\d{1,3})?|prec@\d{1,3})|bleu|reward|log[ _]likelihood|elbo|[wc]er|f1|m?iou|dice|auc|"
    r"top[ _-]?\d{1,3}(?:[ _]acc(?:uracy)?)?)|\w{1,30}_(?:loss|acc|accuracy|reward)"
)
_BARE = lazy_regex(
    rf"(?<![\w.$/-])({_BARE_NAMES})(?:\.?\s*:?\s+(?:is\s+(?=[-+.\d]\S*$))?|\s*[#\[(]\s{{0,9}})(?:tensor\(\[?)?({NUMBER})(?!\s*[+^=]\s*\w|\s?\*\s*\w(?!\S*\s(?:after|@))|-\w|\s-\s?\d)",
    re.IGNORECASE,
)
_LEVEL = lazy_regex(r"[A-Z]{4,8}|\S*[.:\]>)]\S*")
_BOTH_NAMES = lazy_regex(r"([A-Za-z]\w*)/([A-Za-z]\w*)((?: \w+)?)")
_SECOND = lazy_regex(rf"\s?/\s?({NUMBER})")
_QUALIFIES = {
    "of", "per", "max", "min", "total", "num", "skipped", "nan", "best", "final", "initial", "target", "time", "batch",
    "reader", "ideal",
}  # fmt: skip
_OTHER_MODELS = lazy_regex(r"\b(?:constant|baseline|dummy|majority)(?:'s)?[ _]\w+$", re.IGNORECASE)
"""What a loss is compared with."""
_SPLITS = {"val", "valid", "validation", "test", "eval", "dev"}
_LONGEST_NAME = 64
_BEHIND = lazy_regex(
    rf"(?<![\w.])({NUMBER})(?:[KMGT]i?B|m?s|%)?\s?([A-Za-z|][\w/.|]{{0,40}}(?: l2)?)(?=\s*(?:[,;|·\t-]|\s\s|$))"
)
"""A number and the name behind it, up to the end or what separates it from the next."""
_WORD = lazy_regex(r"[^\s|,;]+")
_IS_NAME, _IS_NUMBER = lazy_regex(r"[A-Za-z_][\w/@.+-]{0,63}"), lazy_regex(NUMBER)
FEWEST = 3
"""Pairs that make a line a row of names and numbers."""


def separated_pairs(line: str, start: int = 0) -> list[Pair]:
    """Find every name followed by `:` or `=` and a number, as ``(name, start, end)`` of the number."""
    found: list[Pair] = []
    last = start
    for match in _SEPARATED.finditer(line, start):
        before = line[max(last, match.start() - _LONGEST_NAME) : match.start()].rstrip(" \t'\"")
        if before.endswith(")") and (of := _OF.search(before)) is not None:
            before = before[: of.start()]
        elif before.endswith("]") and (index := _INDEX.search(before)) is not None:
            before = before[: index.start()]
        cut = 0
        for end in _ENDS_NAME.finditer(before):
            cut = end.end()
        name = _NAME.search(before, cut)
        placed = _PLACED.search(before) if before[-1:].isdigit() else None
        if placed or (name and not _SOURCE.search(name[1]) and not _OTHER_MODELS.search(before)):
            own = placed[1] if placed else _own_words(name[1], line[match.start()]) if name else ""
            found += _two_of(line, _share_of(line, (own, *match.span(1))))
            last = found[-1][2]
    return found


def _share_of(line: str, pair: Pair) -> Pair:
    """The share of a score, where it stands in parentheses behind the sum."""
    share = _SHARE.match(line, pair[2]) if _SCORED.search(pair[0]) else None
    return pair if share is None else (pair[0], *share.span(1))


def _two_of(line: str, pair: Pair) -> list[Pair]:
    """`Gen/Dis Loss: 0.33/-0.01`: two names and their two numbers."""
    name, begin, end = pair
    two = _BOTH_NAMES.fullmatch(name)
    second = _SECOND.match(line, end) if two else None
    if two is None or second is None:
        return [pair]
    return [(f"{two[1]}{two[3]}", begin, end), (f"{two[2]}{two[3]}", *second.span(1))]


def _own_words(name: str, mark: str) -> str:
    """`INFO trainer step` -> `step`: drop words that belong to the text before.

    `best loss:` differs from `loss:`, so words before a colon stay; names before `=` are mostly one word.
    """
    words = name.split()
    if len(words) == 1 or column_of(plain(name)) or (len(words) == 2 and words[0].lower() in _SPLITS):
        return name
    for first in range(1, len(words)):
        end = " ".join(words[first:])
        column = column_of(plain(end))
        alone = words[first - 1].lower() not in _QUALIFIES if mark == "=" else all(map(_LEVEL.fullmatch, words[:first]))
        if column and alone:
            return end
    return name


def bare_pairs(line: str, start: int = 0) -> list[Pair]:
    """Find every well-known name followed by a number; `name is number` only at the start of the text."""
    return [
        (match[1], match.start(2), match.end(2))
        for match in _BARE.finditer(line, start)
        if " is" not in line[match.end(1) : match.start(2)] or not line[start : match.start()].strip()
    ]


AVERAGE = lazy_regex(rf"(?<![\w-])loss\W{{0,3}}\s{NUMBER}\s+\(({NUMBER})\)", re.IGNORECASE)
"""`Loss 3.2168 (37.0903)`: now, and on average."""

_IN_LIST = lazy_regex(rf"\s*,\s*(?:[A-Za-z_][\w.]{{0,16}}\()?({NUMBER})\)?")


def worst_of_list(line: str, begin: int, end: int) -> tuple[int, int] | None:
    """The span of the first non-finite item of the list that a number opens, else its own; None if it opens none."""
    if "[" not in line[max(begin - 12, 0) : begin] or line[end : end + 2].lstrip(")")[:1] != ",":
        return None
    place, item = end + (line[end] == ")"), (begin, end)
    while not line[item[0] : item[1]].lower().lstrip("+-").startswith(("nan", "inf")):
        following = _IN_LIST.match(line, place)
        if following is None:
            return begin, end
        place, item = following.end(), following.span(1)
    return item


def alternating_pairs(line: str, start: int = 0) -> list[Pair]:
    """Every pair of a line that is nothing but names and numbers in turn: `epoch 3 loss 0.9 recall 0.5`."""
    words = list(_WORD.finditer(line, start))
    names, numbers = words[::2], words[1::2]
    if len(names) != len(numbers) or len(names) < FEWEST or not all(_IS_NAME.fullmatch(each[0]) for each in names):
        return []
    places = [_IS_NUMBER.fullmatch(each[0]) for each in numbers]
    if not all(places):
        return []
    return [(name[0], each.start(), each.end()) for name, each in zip(names, numbers, strict=True)]


def named_behind(line: str, start: int = 0) -> list[Pair]:
    """Every pair of a line that ends in numbers with their names behind: `step 40 | 2.31 loss, 0.92 gnorm`."""
    if ":" in line[start:] or "=" in line[start:]:
        return []
    found = list(_BEHIND.finditer(line, start))
    if len(found) < 2 or line[found[-1].end() :].strip() or not any(_is_vital(plain(each[2])) for each in found):
        return []
    return [(each[2], *each.span(1)) for each in found]


def _is_vital(name: str) -> bool:
    return column_of(name) in ("loss", "grad_norm") or is_loss_part(name)


def all_pairs(line: str, start: int = 0) -> list[Pair]:
    """Both kinds of pairs, in line order."""
    if behind := named_behind(line, start):
        return behind
    found = {pair[1]: pair for pair in separated_pairs(line, start)}
    bare = [_share_of(line, pair) for pair in bare_pairs(line, start)]
    for pair in [*bare, *(alternating_pairs(line, start) if bare else ())]:
        found.setdefault(pair[1], pair)
    return [found[place] for place in sorted(found)]
