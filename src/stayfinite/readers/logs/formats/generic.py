"""The fallback: any line with a named loss or gradient norm.

::

    step 10 | loss 2.6030 | grad_norm  9.9375
    Epoch 1: Training Loss: 7129515.3131, Validation Loss: nan, BLEU: 0.00
    [val] step 29 | loss nan
    losses=[0.0089, nan, nan]
    [valid] Ep. 1 : Up. 1000 : Cost 10.1 : Time 9.53s
    [rank0]:[titan] - root - INFO - step:  3  loss:  4.9925  grad_norm:  2.6422  tps: 30,768

Prose, settings and code are ignored: the name must be that of a measurement and come right before its number.
"""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import column_of, is_evaluation, is_loss_part, plain
from stayfinite.core.series import RUNNING_AVERAGE
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import AVERAGE, Pair, all_pairs, worst_of_list
from stayfinite.readers.logs.reading import BATCH, BATCHES, SKIPS_EVER, TOTAL, TOTAL_EPOCHS, Reading

_EVALUATES = lazy_regex(
    r"(?<![\w.])(?:e?val|evaluat\w{1,8}|valid|validat\w{1,8}|test(?:ing)?|dev)(?=[\])|\s:/-])", re.IGNORECASE
)
_OUT_OF = lazy_regex(r"\s*(?:/|of)\s*(\d[\d,]*)")
_BATCH = lazy_regex(r"\[\s*(\d+)\s*/\s*(\d+)\s*(?:\(\s*\d+\s*%\s*\))?\]")
_EPOCH_BATCH = lazy_regex(r"\[\s*(\d+)(?:/\d+)?\]\s*\[\s*(\d+)\s*/\s*(\d+)\s*\]")
_HEAD = lazy_regex(r"\s*(?:train(?:ing)?|iter(?:ation)?|batch|update)\s+(\d+)\s*/\s*(\d+)(?=\s)", re.IGNORECASE)
_TUTORIAL = lazy_regex(r"\s*\[(\d+),\s*(\d+)\]")
_DLLOGGER = lazy_regex(r"DLL \S{8,12} \S{8,20} - \((\d+),\s*(\d+)")
_SKIPS = lazy_regex(r"\bskipp(?:ed|ing)\b(?!\s*[:=]?\s*\d)", re.IGNORECASE)
_COUNTS = {"skipped": SKIPS_EVER}
_CODE = lazy_regex(
    r"\s*(?:\{|File |self\.|def |class |return |if |for |raise |assert |import |from |with "
    r"|>>>(?!\s\w{1,60}:\s)|\.\.\.|\^|\d+\s*[|:]\s{4,}\w)"
)
_CALL = lazy_regex(r"\w\(\w{0,80}\)\s*$")
_ERROR = lazy_regex(r"\s*[\w.]*(?:Error|Exception|Warning|Interrupt|Exit)\b")
_ARITHMETIC = lazy_regex(r"\s*(?:[*^@]|[+/]\s*[A-Za-z(])")
_PERPLEXITY = lazy_regex(r"(?:^|_)(?:ppl|perplexity)$")
_SHARE = lazy_regex(r"\s?/\s?\d{1,9}\s{1,2}\((\d{1,3}(?:\.\d{1,9})?)\s?%\)")
_DURATION = lazy_regex(r"\s?(?:s|ms|sec\w*|min\w*|h|hours?)\b", re.IGNORECASE)
_WORDS = lazy_regex(r"(?<![\w.])(?!nan\b|inf\b)[a-z]{3,}(?![\w.(=:])")


class Generic(Format):
    """Lines with a named loss or gradient norm that no other format claims."""

    marks = ("loss", "norm", "cost", "nll", "kld", "ppl", "perplexity", "entropy", "ce =", "ce:")
    is_last = True

    def read(self, line: str, start: int) -> Reading | None:
        if _CODE.match(line, start) or _ERROR.match(line, start) or _CALL.search(line, max(start, len(line) - 100)):
            return None
        pairs = [
            pair for pair in all_pairs(line, start) if plain(pair[0]) != "batch" or line[pair[1] : pair[2]].isdigit()
        ]
        if not pairs:
            return None
        if any(_ARITHMETIC.match(line, end) and "loss" in name.lower() for name, _, end in pairs):
            return None
        names = [plain(name) for name, _, _ in pairs]
        columns = [column_of(name) for name in names]
        parts = [name for name in names if is_loss_part(name)]
        evaluated = [name for name in names if is_evaluation(name) and "loss" in name]
        norm = "grad_norm" in columns and names[columns.index("grad_norm")] not in {"norm", "grad"}
        perplexed = any(map(_PERPLEXITY.search, names))
        if not (parts or evaluated or norm or perplexed or "loss" in columns):
            return None
        if not (norm or perplexed or evaluated or _measures_a_loss(line, names, columns, pairs)):
            return None
        first = min(begin for _, begin, _ in pairs)
        evaluation = _EVALUATES.search(line, start, first) is not None and not any(map(is_evaluation, names))
        pairs = [_as_share(line, pair) for pair in pairs]
        reading = Reading("plain", epoch_is_step=True)
        self._wholes(reading, line, pairs)
        if reading.has(BATCH):
            pairs = [pair for pair in pairs if column_of(plain(pair[0])) != "step"]
        elif not reading.has("step") and "step" not in columns:
            pairs = self._brackets(reading, line, start, pairs)
        pairs = reading.without_eta(pairs, line, start)
        if "[" in line:
            pairs = self._lists(reading, line, pairs)
        reading.take([pair for pair in pairs if plain(pair[0]) != "batch"], evaluation=evaluation)
        reading.fields = [(_COUNTS.get(name, name), begin, end) for name, begin, end in reading.fields]
        average = AVERAGE.search(line, start)
        if average and not evaluation:
            reading.fields.append((RUNNING_AVERAGE, *average.span(1)))
        reading.skipped = _SKIPS.search(line, start) is not None
        reading.is_point = reading.has("loss", "grad_norm") and not evaluation
        placed = len(parts) > 1 or reading.has("step", "epoch", BATCH)
        if any("loss" in name for name in parts) and placed and not evaluation and not reading.is_point:
            reading.loss_is_sum = reading.is_point = True
        # More prose than numbers, or a remark such as `loss 1.2 -> 16000`.
        reading.is_message = len(_WORDS.findall(line, start)) > 2 * len(pairs) or "->" in line
        return reading

    @staticmethod
    def _brackets(reading: Reading, line: str, start: int, pairs: list[Pair]) -> list[Pair]:
        """Read epoch and batch from `[1/60][880/3466]`, `[0][ 10/500]`, `[1, 2000]` or `DLL ... - (0, 50)`.

        `[640/60000 (1%)]` is progress within the epoch, `Training 3/500` the step.
        """
        tutorial = _TUTORIAL.match(line, start) or _DLLOGGER.match(line, start)
        if tutorial:
            reading.fields += [("epoch", *tutorial.span(1)), (BATCH, *tutorial.span(2))]
            return pairs
        both = _EPOCH_BATCH.search(line, start)
        if both:
            reading.fields += [("epoch", *both.span(1)), (BATCH, *both.span(2)), (BATCHES, *both.span(3))]
            return [pair for pair in pairs if not both.start() <= pair[1] < both.end()]
        head = _HEAD.match(line, start)
        if head:
            reading.fields += [("step", *head.span(1)), (TOTAL, *head.span(2))]
            return pairs
        starts = {begin for _, begin, _ in pairs}
        for batch in _BATCH.finditer(line, start):
            if batch.start(1) not in starts:
                reading.fields += [(BATCH, *batch.span(1)), (BATCHES, *batch.span(2))]
                break
        return pairs

    @staticmethod
    def _lists(reading: Reading, line: str, pairs: list[Pair]) -> list[Pair]:
        """Represent a list of losses by its first non-finite item."""
        found = []
        for name, begin, end in pairs:
            place = worst_of_list(line, begin, end) if "loss" in name.lower() else None
            reading.has_shape = reading.has_shape and place is None
            found.append((name, *(place or (begin, end))))
        return found

    @staticmethod
    def _wholes(reading: Reading, line: str, pairs: list[Pair]) -> None:
        """`step 3/100`: the second number is the total of the run or, after an epoch, of that epoch."""
        in_epoch = False
        for name, begin, end in pairs:
            column = column_of(plain(name))
            out_of = _OUT_OF.match(line, end)
            if column == "epoch":
                in_epoch = "." not in line[begin:end]
                if out_of:
                    reading.fields.append((TOTAL_EPOCHS, *out_of.span(1)))
            elif plain(name) == "batch" or (column == "step" and out_of and in_epoch):
                reading.fields.append((BATCH, begin, end))
                if out_of:
                    reading.fields.append((BATCHES, *out_of.span(1)))
                return
            elif out_of and column == "step":
                reading.fields.append((TOTAL, *out_of.span(1)))
                return


def _as_share(line: str, pair: Pair) -> Pair:
    """`Accuracy: 980/10000 (10%)`: of a count the share in percent."""
    share = _SHARE.match(line, pair[2])
    return pair if share is None or "acc" not in pair[0].lower() else (pair[0], *share.span(1))


def _measures_a_loss(line: str, names: list[str], columns: list[str], pairs: list[Pair]) -> bool:
    """Whether a name means a loss, or may mean one (`cost: 0.3`) in a suggestive place.

    That is next to a step or an epoch, in a list, or with a non-finite value; never a duration.
    """
    if any("loss" in name and name != "losses" for name in names):
        return True
    placed = not {"step", "epoch"}.isdisjoint(columns)
    for name, (_, begin, end) in zip(names, pairs, strict=True):
        if (column_of(name) == "loss" or is_loss_part(name)) and not _DURATION.match(line, end):
            listed = name == "losses" and worst_of_list(line, begin, end) is not None
            if placed or listed or not any(map(str.isdigit, line[begin:end])):
                return True
    return False
