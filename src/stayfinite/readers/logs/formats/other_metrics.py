"""Lines that measure something else than a loss: a score, a reward, what activations and weights look like.

::

    Epoch 3: acc=0.1
    mean reward -20.5
    iter 10: activation mean nan std nan
    [val] step 400 | bleu: 0.0

A name of a measure counts beside a step or an epoch, alone in its line, or where its value is not finite; beside a step
and another number any name does: `ep 1 it 50 | G: 1.2031 D: 0.6891`.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.names import NO_METRICS, column_of, plain
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.pairs import separated_pairs
from stayfinite.readers.logs.reading import Reading

_SCORES = (
    r"acc|accuracy|dsc|ndcg\S{0,4}|cider|meteor|"
    r"bleu|rouge\w{0,4}|f1|em|exact[ _]match|wer|cer|auc|auroc|miou|iou|dice|map\w{0,8}|recall|precision|"
    r"err(?:or)?(?:[ _]rate)?|psnr|ssim|fid|mse|mae|rmse|reward|return|score|kl|entropy|elbo|energy|perplexity"
)
_QUANTITY = (
    rf"{_SCORES}|"
    r"activations?|logits?|outputs?|hidden|weights?|params?|gradients?|grads?|preds?|predictions?"
)
_BARE = re.compile(
    rf"(?<![\w.$/-])((?:(?:train|val|valid|test|eval|mean|avg|average|episode|max|min)[ _])?(?:{_QUANTITY})"
    rf"(?:[ _](?:mean|std|max|min|abs|norm|var))?)\s{{1,4}}(?:tensor\()?({NUMBER})",
    re.IGNORECASE,
)
_NAME = re.compile(rf"(?:^|[_/ ])(?:{_QUANTITY})(?:$|[_/@ ]|\d)", re.IGNORECASE)
_SCORE = re.compile(rf"(?:^|[_/ ])(?:{_SCORES})(?:$|[_/@ ]|\d)", re.IGNORECASE)
_PLACE = re.compile(
    r"(?<![\w.])((?:global[ _]?)?steps?|iter(?:ation)?s?|epochs?|episodes?|update|round|ep|it)"
    r"\s{0,9}[#:=]?\s{0,2}(\d+)",
    re.IGNORECASE,
)
_CODE = re.compile(r"\s*(?:\{|File |self\.|def |class |return |if |for |raise |assert |import |from |with |>>>|\^)")


class OtherMetrics(Format):
    """One line a step, an epoch or an evaluation."""

    marks = (
        "nan", "| ", "err",
        "acc", "dsc", "ndcg", "cider", "meteor", "bleu", "rouge",
        "f1", "match", "wer", "cer", "auc", "auroc", "iou", "dice", "map", "recall",
        "precision", "psnr", "ssim", "fid", "mse", "mae", "reward", "return", "score", "kl", "entropy", "elbo",
        "energy", "activation", "logit", "output", "hidden", "weight", "param", "grad", "pred",
    )  # fmt: skip
    is_last = True

    def read(self, line: str, start: int) -> Reading | None:
        """See ``Format.read``."""
        if _CODE.match(line, start):
            return None
        pairs = {begin: (plain(name), begin, end) for name, begin, end in separated_pairs(line, start)}
        for match in _BARE.finditer(line, start):
            pairs.setdefault(match.start(2), (plain(match[1]), *match.span(2)))
        place = _place(line, start)
        measured = place is not None and len(pairs) > 1  # a row of numbers: any name will do
        named = [
            pair
            for _, pair in sorted(pairs.items())
            if (measured or _NAME.search(pair[0])) and not column_of(pair[0]) and pair[0] not in NO_METRICS
        ]
        if not named:
            return None
        lost = any(line[end - 1 : end].isalpha() for _, _, end in named)
        if place is None and not lost and not _says_nothing_else(line, start, named):
            return None
        reading = Reading("plain", is_point=False, epoch_is_step=True)
        if place is not None and all(place.start(2) != begin for _, begin, _ in named):
            column = column_of(plain(place[1])) or "step"
            reading.fields.append((column, *place.span(2)))
        taken = set()
        for name, begin, end in named:
            if name not in taken:
                taken.add(name)
                reading.fields.append((name, begin, end))
        reading.is_message = lost
        return reading


def _place(line: str, start: int) -> re.Match[str] | None:
    """The step of a line; its epoch where it names no step."""
    places = list(_PLACE.finditer(line, start))
    steps = [each for each in places if column_of(plain(each[1])) != "epoch"]
    return next(iter(steps or places), None)


def _says_nothing_else(line: str, start: int, named: list[tuple[str, int, int]]) -> bool:
    """Whether scores and their numbers are all that the line has."""
    if not all(_SCORE.search(name) for name, _, _ in named):
        return False  # `loss weight: 0.5` is a setting
    words = len(line[start : named[-1][2]].split())
    return not line[named[-1][2] :].strip(" %.,;|)]") and words <= 5 * len(named)
