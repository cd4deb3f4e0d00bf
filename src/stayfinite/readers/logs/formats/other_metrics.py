"""Lines with metrics other than a loss: scores, rewards, statistics of activations and weights.

::

    Epoch 3: acc=0.1
    mean reward -20.5
    iter 10: activation mean nan std nan
    [val] step 400 | bleu: 0.0

A metric name counts next to a step or an epoch, alone on its line, or with a non-finite value. Next to a step and
another number any name counts: `ep 1 it 50 | G: 1.2031 D: 0.6891`.
"""

from __future__ import annotations

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import NO_METRICS, column_of, is_evaluation, plain
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import NUMBER, Pair, number, separated_pairs
from stayfinite.readers.logs.reading import SCORES, Reading, fields_of

ANSWERS = "confusion/answers"
_PRECISION = lazy_regex(rf"\s*Average Precision\s+\(AP\) @\[[^\]]{{10,80}}\] = ({NUMBER})")
_ROW = lazy_regex(r"\s*(\[?)\[\s*(\d+(?:[\s,]+\d+){1,40})\s*\]{1,2}\s*$")


class Evaluations(Format):
    """Evaluation blocks: COCO's summary and confusion matrices.

    ::

         Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.000
        [[    0     0  7917]
         [    0     0  2748]]

    A precision becomes the metric `coco_ap`. From a matrix, whose rows are true classes, `confusion/answers` counts the
    predicted classes once a second row with examples is read.
    """

    waits = True
    marks = ("average precision", "[[")

    def __init__(self) -> None:
        self._answered: set[int] = set()
        self._rows = 0

    def read(self, line: str, start: int) -> Reading | None:
        precision = _PRECISION.match(line, start)
        if precision is not None:
            place = () if precision[1].startswith("-") else (("coco_ap", *precision.span(1)),)
            return Reading("coco", fields=list(place), is_point=False)
        row = _ROW.match(line, start)
        self.is_open = row is not None and (bool(row[1]) or self.is_open)
        if row is None or not self.is_open:
            return None
        if row[1]:
            self._answered, self._rows = set(), 0
        counts = [int(count) for count in re.split(r"[\s,]+", row[2])]
        self._answered.update(column for column, count in enumerate(counts) if count)
        self._rows += any(counts)
        if self._rows < 2:
            return None
        return Reading("", constants={ANSWERS: float(len(self._answered))}, is_point=False, has_shape=False)


_ROUND = lazy_regex(rf"\bfit progress: \((?P<epoch>\d+), (?P<eval_loss>{NUMBER}), ")
_CLASSES = lazy_regex(r"\bPseudo dice \[([^\]\n]{1,400})\]")
_ITEM = lazy_regex(rf"(?<![\w.])(?:{NUMBER})")


class Rounds(Format):
    """Flower's evaluation of a round, nnU-Net's of an epoch, which counts as the best of its classes.

    ::

        fit progress: (3, 1.8042, {'accuracy': 0.44}, 36.9)
        Pseudo dice [0.0, 0.8123, np.float32(0.7519)]
    """

    marks = ("fit progress", "pseudo dice")

    def read(self, line: str, start: int) -> Reading | None:
        found = _ROUND.search(line, start)
        if found is not None:
            reading = Reading("flower", fields=fields_of(found), is_point=False, epoch_is_step=True)
            pairs = separated_pairs(line, found.end())
            reading.take([(f"eval_{name.strip()}", begin, end) for name, begin, end in pairs])
            return reading
        classes = _CLASSES.search(line, start)
        items = [] if classes is None else [each.span() for each in _ITEM.finditer(line, *classes.span(1))]
        if not items:
            return None
        best = max(items, key=lambda span: _worth(line[span[0] : span[1]]))
        return Reading("nnu-net", fields=[("eval_dice", *best)], is_point=False, has_shape=False)


def _worth(text: str) -> float:
    """The value of a class; one without examples has none."""
    value = number(text)
    return value if math.isfinite(value) else -1.0


_RATES_PLACE = (
    r"(?:\[?epoch:?\s*\[?\s*(?P<epoch>\d+)(?:/\d+)?\s*\]?(?:\s*\[\s*(?P<batch>\d+)\s*/\s*(?P<batches>\d+)\s*\])?"
    r"|(?:iter(?:ation)?|(?:global[ _])?step)[ :=#]{1,3}(?P<step>\d+)(?:\s*/\s*\d+)?)"
)
_RATE = lazy_regex(
    rf"\s*+(?:{_RATES_PLACE}[\s,;:|\]-]{{1,20}}(?:current\s+)?(?:lr|learning[ _]rate)\s*[:=]?"
    rf"|current (?:lr|learning rate)\s*(?:is|[:=])|(?:last_)?lr\s*[:=]\s*(?=\[))"
    rf"\s*\[{{0,2}}(?P<lr>{NUMBER})(?:[\],]|\s|$)",
    re.IGNORECASE,
)
_SCALE = lazy_regex(
    rf"\s*+(?:DLL\s.{{10,40}}?-\s.{{0,60}}?)?(?:PARAMETER |current )"
    rf"(?:loss|grad)[ _]?scale\s*[:=]\s*(?P<loss_scale>{NUMBER})\s*$",
    re.IGNORECASE,
)


_MEASURED_TOO = lazy_regex(
    r"loss|norm|\bppl\b|perplexity|\bbleu\b|\bacc|reward|s[nd]r\b|\bm?iou\b|dice|\bm[sa]e\b", re.IGNORECASE
)


class Rates(Format):
    """Learning rates and loss scales on their own lines, if marked as measured.

    ::

        Epoch: [101][   10/ 5004]    LR 0.045000
        [Epoch 1]       Learning rate: 1.00e-4
        Iteration 2380, lr = 0.001
        Current learning rate: 0.001
        lr=[0.0] mean=-0.000124
        DLL 2020-06-04 01:04:20.355678 - PARAMETER loss_scale : 2.9103830456733704e-11

    The mark is a step or epoch before the rate, the word `current`, or a list, as schedulers return it. A line of
    settings (`lr: 0.1, epochs: 90`) has none of these.
    """

    marks = ("lr", "learning rate", "learning_rate", "scale")

    def read(self, line: str, start: int) -> Reading | None:
        scale = _SCALE.match(line, start)
        if scale:
            return Reading("plain", fields=fields_of(scale))
        found = _RATE.match(line, start)
        if found is None or _MEASURED_TOO.search(line, found.end()):
            return None
        return Reading("plain", fields=fields_of(found), first_epoch=0)


_SCORES = (
    r"acc(?:@\d{1,3})?|accuracy(?:@\d{1,3})?|top[ _-]?\d{1,3}(?:[ _](?:acc|accuracy))?|dsc|ndcg\S{0,4}|cider|meteor|"
    r"bleu|rouge\w{0,4}|f1|em|exact[ _]match|wer|cer|auc|auroc|miou|iou|dice|map\w{0,8}|recall|precision|"
    r"err(?:or)?(?:[ _]rate)?|psnr|ssim|fid|mse|mae|rmse|l[12]|reward|return|score|kl|entropy|elbo|energy|perplexity|"
    r"r2(?:[ _]score)?|q[ _]?values?"
)
_QUANTITY = (
    rf"{_SCORES}|"
    r"activations?|logits?|outputs?|hidden|weights?|params?|gradients?|grads?|preds?|predictions?"
)
_BARE = lazy_regex(
    rf"(?<![\w.$/-])((?:(?:train(?:ing)?|val(?:id(?:ation)?)?|test|eval|mean|avg|average|episode|max|min)[ _])?"
    rf"(?:{_QUANTITY})"
    rf"(?:[ _](?:mean|std|max|min|abs|norm|var))?)\s{{1,32}}(?:tensor\()?({NUMBER})",
    re.IGNORECASE,
)
_NAME = lazy_regex(rf"(?:^|[_/ ])(?:{_QUANTITY})(?:$|[_/@ ]|\d)", re.IGNORECASE)
_SCORE = lazy_regex(rf"(?:^|[_/ ])(?:{_SCORES})(?:$|[_/@ ]|\d)", re.IGNORECASE)
_PLACE = lazy_regex(
    r"(?<![\w.])((?:global[ _]?)?steps?|iter(?:ation)?s?|epochs?|episodes?|update|round|ep|it)"
    r"\s{0,9}[#:=\[(]?\s{0,2}(\d+)",
    re.IGNORECASE,
)
_FRACTION = lazy_regex(r"\s{0,9}()\[\s{0,9}(\d+)\s?/\s?\d+\s?\]")
"""`[1600/16000]` at the start of a line is a step of so many."""
_WORDS = lazy_regex(r"(?<![\w.])(?!nan\b|inf\b)[a-z]{3,}(?![\w.(=:])")
_OF_NONE = lazy_regex(
    r"\b(?:count|support|instances|num_(?:samples|examples|pos|gt))\s?[:=]\s?0(?![.\d])", re.IGNORECASE
)
"""Means over no rows are NaN."""
_CODE = lazy_regex(r"\s*(?:\{|File |self\.|def |class |return |if |for |raise |assert |import |from |with |>>>|\^)")


class OtherMetrics(Format):
    """One line per step, epoch or evaluation."""

    marks = (
        "nan", "inf", "| ", "err", "l1", "l2", "step", "iter", "it=", "epoch", "update",
        "acc", "top", "dsc", "ndcg", "cider", "meteor", "bleu", "rouge",
        "f1", "match", "wer", "cer", "auc", "auroc", "iou", "dice", "map", "recall",
        "precision", "psnr", "ssim", "fid", "mse", "mae", "reward", "return", "score", "kl", "entropy", "elbo",
        "energy", "r2", "value", "activation", "logit", "output", "hidden", "weight", "param", "grad", "pred",
    )  # fmt: skip
    is_last = True

    def read(self, line: str, start: int) -> Reading | None:
        if _CODE.match(line, start):
            return None
        pairs = {begin: (plain(name), begin, end) for name, begin, end in separated_pairs(line, start)}
        for match in _BARE.finditer(line, start):
            pairs.setdefault(match.start(2), (plain(match[1]), *match.span(2)))
        place = _place(line, start)
        # A row of numbers: any name counts. `epochs=10, batch_size=4` are settings.
        measured = place is not None and len(pairs) > 1 and not place[1].lower().endswith("s")
        named = [
            pair
            for _, pair in sorted(pairs.items())
            if (measured or _NAME.search(pair[0])) and not column_of(pair[0]) and pair[0] not in NO_METRICS
        ]
        lost = any(line[end - 1 : end].isalpha() for _, _, end in named)
        if lost and _OF_NONE.search(line, start):
            return Reading("plain", is_point=False, has_shape=False)
        if not named:
            return None
        if place is None and not lost and not _says_nothing_else(line, start, named):
            return None
        reading = Reading("plain", is_point=False, epoch_is_step=True)
        if place is not None and all(place.start(2) != begin for _, begin, _ in named):
            column = column_of(plain(place[1])) or "step"
            reading.fields.append((column, *place.span(2)))
        taken = set()
        of_evaluation = is_evaluation(named[0][0])
        for written, begin, end in named:
            name = f"eval_{written}" if of_evaluation and written in SCORES else written
            if name not in taken:
                taken.add(name)
                reading.fields.append((name, begin, end))
        # A sentence with a number, or unknown names: `epoch: 100, batch_size: 64` may be settings.
        unknown = not any(_NAME.search(name) for name, _, _ in named)
        reading.is_message = lost or unknown or len(_WORDS.findall(line, start)) > 3 * len(named)
        return reading


def _place(line: str, start: int) -> re.Match[str] | None:
    """Match the step of a line, or its epoch if it has no step."""
    places = list(_PLACE.finditer(line, start))
    steps = [each for each in places if column_of(plain(each[1])) != "epoch"]
    return next(iter(steps or places), None) or _FRACTION.match(line, start)


def _says_nothing_else(line: str, start: int, named: list[Pair]) -> bool:
    """Whether the line holds only scores and their numbers."""
    if not all(_SCORE.search(name) for name, _, _ in named):
        return False  # `loss weight: 0.5` is a setting
    words = len(line[start : named[-1][2]].split())
    return not line[named[-1][2] :].strip(" %.,;|)]") and words <= 5 * len(named)
