"""The last batch has one row, but BatchNorm needs two.

## What it means
The number of rows leaves a remainder of one, `drop_last` is off, and a batch normalization of the model cannot be
computed over one value: the epoch ends with an error, after all of it was trained. Where a row has several positions it
can be computed, and says next to nothing.

## Why it happens
`len(dataset) % batch_size == 1`. It comes and goes with the size of a split, so that it shows first on the real data.

## How to recognize it
- `ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 256])`, at the end of
  the first epoch: every batch but the last one worked.
- A loss that jumps at each epoch's last step.

## How to fix it
- `DataLoader(..., drop_last=True)` for training; transformers: `dataloader_drop_last=True`.
- Another batch size, or `GroupNorm` or `LayerNorm` in place of `BatchNorm`.
- `SyncBatchNorm` over several ranks sees the rows of all of them.

## When it is a false alarm
A sampler of one's own may leave another remainder than the dataset's length says. In evaluation mode the running
statistics are used, and one row is enough.
"""

import re
from itertools import product

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

ONE_VALUE = (
    r"expected more than 1 value per channel when training|batchnorm a single value per channel|"
    r"got input size (?:torch\.size\()?\[1, \d+\]"
)
_AT_THE_END = (
    r"\blast (?:batch|iter\w*|step|one|piece|mini-?batch)\b|\bend of (?:\w+ )?(?:\w+ )?epoch|100(?:\.0+)?%|"
    r"\bafter (?:1|one|the first) epoch|in the end\b|(?<![\d/])(\d{2,})(?: of |/)\1(?![\d/])|\b\d+(?: \d+)+ 1$"
)
"""Every batch before it worked."""
_NORM = r"batch_?norm|\bbn\b"
_ODD_ONE = r"\blast\b|\bspikes?\b|\bjumps?\b"
_BATCH = lazy_regex(r"\b(?:batch\w*(?:[ _]size)?|bs|bsz)(?: of)?\W{0,4}(\d+)\b|\bbatches of (\d+)", re.IGNORECASE)
_OF_ROWS = lazy_regex(
    r"images?\b|imgs?\b|samples|\brows|examples|windows|graphs|crops\b|pictures|shapes?\b|clips|sentences|items|"
    r"records|files|\bfolds?\b|len\(|data ?set|\bdata\b|pairs|patches|molecules|cells\b|subjects|patients|scans|slices|"
    r"videos|frames\b|utterances|sequences|documents|sentences|trajector|point ?clouds",
    re.IGNORECASE,
)
_ROWS = lazy_regex(r"(?<![\d.\[e-])(?<!line )(?<!size=)(?<!size )(\d{1,3}(?:,\d{3})+|\d+)(?![\d.]*[\d\]x%])")
_ERROR = r"^\s*(?:\w+\.)*\w+(?:Error|Exception)\b: "
"""The last line of a traceback."""
_SHARES = lazy_regex(
    r"\b(?:num_workers|workers|num_gpus|gpus|world[_ ]size|nproc_per_node)\W{1,4}(\d+)\b", re.IGNORECASE
)
"""Workers or ranks that split the rows of a stream among them."""
_REMAINDER = r"% ?\w*batch\w* ?== ?1\b"
NO_CHANCE = 16
"""Batches of so many rows seldom leave one by chance."""
LONGEST = 400
"""Longer lines are not remarks."""


def judge(facts: Facts) -> Clues:
    """A look at loader and model tells; so does BatchNorm's refusal where every batch but the epoch's last worked."""
    fails = facts.seen("loader.last_batch_fails")
    if fails is not None and fails.value:
        text = f"{fails.value} rows leave a last batch of 1 row; {fails.where} needs at least 2"
        yield Clue(text, PROOF, fails.where)
    refused = facts.said(ONE_VALUE)
    if refused is None:  # the traceback is cut before its last line
        yield from quote(facts.said(r"\b_verify_batch_size\("), STRONG)
        if facts.mentioned(_NORM) is not None and facts.mentioned(_ODD_ONE) is not None:
            yield from quote(facts.mentioned(_REMAINDER) or _remainder_of_one(facts), STRONG + FAIR)
        elif facts.symptoms.crash is not None and facts.said(_ERROR) is None:
            yield from quote(_remainder_of_one(facts, NO_CHANCE), STRONG)
        return
    if any(map(_ends_an_epoch, facts.runs)):
        yield Clue(f"at the end of an epoch: {refused.text.strip().splitlines()[-1]}", PROOF, refused.where)
    yield from quote(_remainder_of_one(facts), PROOF)
    larger = max((batch for batch, _ in _batches(facts)), default=1)
    if larger > 1 and not any(rows > larger for rows in _counts(facts)):
        text = f"a batch of 1, but the batch size is {larger}: the last batch of the epoch"
        yield Clue(text, STRONG + FAIR, refused.where)
    yield from quote(facts.mentioned(_AT_THE_END), PROOF - HINT, "the batches before it worked: {:.100}")


def _batches(facts: Facts) -> list[tuple[int, Line]]:
    """Each batch size that is named, and where."""
    return [(int(one or other), line) for line in _remarks(facts) for one, other in _BATCH.findall(line.text)]


def _remarks(facts: Facts) -> list[Line]:
    return [line for line in facts.lines if len(line.text) < LONGEST]


def _counts(facts: Facts) -> set[int]:
    """Each number of rows that is named."""
    return {
        int(number.replace(",", ""))
        for line in _remarks(facts)
        if _OF_ROWS.search(line.text)
        for number in _ROWS.findall(line.text)
    }


def _remainder_of_one(facts: Facts, least: int = 2) -> Line | None:
    """A number of rows and a batch size of at least this that leave one row."""
    counts = _counts(facts)
    for batch, line in _batches(facts):
        rows = next((rows for rows in sorted(counts) if rows > batch >= least and rows % batch == 1), None)
        if rows is not None:
            return Line(line.where, f"{rows:,} rows in batches of {batch:,} leave one")
    shares = {int(number) for line in _remarks(facts) for number in _SHARES.findall(line.text)}
    for batch, line in _batches(facts):
        for rows, parts in product(sorted(counts), sorted(shares)):
            if parts > 1 and rows % parts == 0 and rows // parts > batch >= least and rows // parts % batch == 1:
                return Line(line.where, f"{rows:,} rows, split among {parts}, in batches of {batch:,} leave one")
    return None


def _ends_an_epoch(run: RunSeries) -> bool:
    """Whether the last logged step is the last one, or the one before it."""
    last = None if run.last is None else run.last.step
    return last is not None and run.total_steps is not None and run.total_steps > 2 and last >= run.total_steps - 1


RULE = Rule(
    code="SF321",
    fix="DataLoader(..., drop_last=True), or change the batch size",
    beats=("wrong-mode",),
    observes={
        "loader.last_batch_fails": "rows of a dataset whose last batch is one row with which the model fails, else 0"
    },
)
