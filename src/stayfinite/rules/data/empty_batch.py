"""A batch or a dataset has no rows.

## What it means
There was nothing to compute with. A mean over nothing is NaN, a division by the number of batches fails, stacking an
empty list fails, or the loop ends at once and training "finishes" after 0 steps.

## Why it happens
- A path or a pattern that matches no file; a filter that removes every row; a split that does not exist.
- `drop_last=True` with fewer rows than the batch size, on each rank.
- A collator that drops bad rows and is left with none; a packer that gets only rows that are too long.
- An iterable dataset that was used up by the first epoch.
- Detection or segmentation batches without any object, where the loss divides by the number of positives.

## How to recognize it
- `ValueError: num_samples should be a positive integer value, but got num_samples=0`.
- `RuntimeError: stack expects a non-empty TensorList`, `cannot reshape tensor of 0 elements`,
  `expected a non-empty list of Tensors`.
- `There seems not to be a single sample in your epoch_iterator, stopping training at step 0!` (transformers),
  `Total length of DataLoader across ranks is zero` (Lightning), `Num examples = 0`.
- `ZeroDivisionError: division by zero` at `total / len(loader)`.

## How to fix it
- Print `len(dataset)` and the first row before training, and fail there if it is empty.
- `drop_last=False` for small sets (transformers: `dataloader_drop_last=False`), or a batch no larger than rows per
  rank.
- Filters: count before and after. Collators: return None for an empty batch and skip it, or fill up with other rows.
- Streams: `dataset.repeat()` or `max_steps` within what there is.
- Losses: `loss.sum() / max(count, 1)`; keep the graph with `pred.sum() * 0` when nothing is positive.

## When it is a false alarm
An evaluation or prediction split may be empty on purpose. With an iterable dataset the end of the data before
`max_steps` is expected.
"""

import re
from math import isfinite

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.number_shapes import digits
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_NOTHING = (
    r"num_samples ?= ?0|stack expects a non-empty TensorList|cannot reshape tensor of 0 elements|"
    r"not (?:to be )?a single sample in your epoch_iterator|"
    r"(?:total length of|length of) .{0,20}DataLoader.{0,30} is zero|\bnum examples ?[=:] ?0\b|"
    r"expected a non-empty list of tensors|input\.numel\(\) ?== ?0|"
    r"(?<!whole )(?:data ?set|data ?loader|training data) (?:is|was|seems) empty|"
    r"empty (?:data ?set|batch|data ?loader)\b|\bfound 0 (?:files|images|samples|rows)|"
    r"no (?:images|samples|examples|labels|training data|data) (?:were |was )?found|"
    r"non-empty (?:sequence|dataset)|"
    r"(?<![\d.,])0 (?:training )?(?:samples|examples|images|rows|files|sentences|utterances) (?:loaded|found|left|"
    r"remain|in)|"
    r"\bn_samples ?= ?0\b|array with 0 (?:sample|feature)|(?:zero-size array|empty) to reduction|empty sequence\b|"
    r"could(?:n'?t| not) find any (?:class folder|images?|files?|data)|found no valid file|"
    r"(?:total|num(?:ber)?(?: of)?|loaded|got|total number of) (?:train\w* )?(?:samples|examples|images|rows|batches|"
    r"sentences|instances)\W{1,3}0\b(?!\.)|"
    r"\(empty logs\)|non-empty take from an empty|index 0 is out of bounds for .{0,24}size 0"
)


_OVER_LENGTH = r"/=?\s{0,4}(?:float\(|max\()?len\([\w.\[\]'\"]*(?:loader|data\w*|set|batch\w*|iter\w*)\b"
_MEAN = r"(?:mean|avg|average)\w*['\"\]]*\s*=[^=].*\S\s?/\s?\S"
"""The source line of a mean, as a traceback quotes it."""
_NO_ROUNDS = r"^\s*0it \[00:00|\|\s*0/0 \["
_OF_EVALUATION = lazy_regex(r"(?:^|[_/])(?:val|valid|validation|eval|test|dev)(?:$|[_/])")
_COUNT = lazy_regex(
    r"(?:batch_?)?(?:size|samples|rows|len(?:gth)?)|bsz|(?:n|num)_?(?:samples|examples|tokens|targets|positives|pos|boxes|"
    r"gts?|labels|valid)|ntokens|nsentences|sample_size"
)
"""Names of how much there is to learn from in a batch."""
DIGITS = 4
"""Digits to which two evaluations of changing weights do not agree."""


def judge(facts: Facts) -> Clues:
    """Clues: messages about missing data are proof; a division by zero batches is nearly proof."""
    seen = facts.seen("data.rows")
    if seen is not None and seen.value == 0:
        yield Clue("the dataset has no rows", PROOF, seen.where)
    batches = facts.seen("loader.batches")
    if batches is not None and batches.value == 0:
        yield Clue("the loader gives no batches", PROOF, batches.where)
    failed = facts.seen("loader.error")
    if failed is not None and re.search(_NOTHING, str(failed.value), re.IGNORECASE):
        yield Clue(str(failed.value), PROOF, failed.where)
    if facts.symptoms.healthy:
        return
    yield from quote(facts.said(_NOTHING), PROOF - 1.0)
    divided = facts.said(r"zerodivisionerror")
    if divided is not None and (over := facts.said(_OVER_LENGTH) or facts.said(_MEAN)) is not None:
        weight = PROOF - 1.0 if "len(" in over.text else FAIR + HINT
        yield Clue(f"division by zero: {over.text.strip()[:100]}", weight, over.where)
    if facts.said(r"\bStopIteration\b") is not None:
        yield from quote(facts.said(r"next\(iter\("), PROOF - 1.0, "the loader gives no batch: {:.100}")
    if facts.symptoms.trouble:
        yield from quote(facts.said(r"mean of empty slice"), PROOF - 1.0)
    if facts.symptoms.bad_losses and not facts.symptoms.good_losses:
        yield from quote(facts.said(_NO_ROUNDS), STRONG + HINT, "a progress bar without a single batch: {:.40}")
    yield from quote(_counted_none(facts), STRONG + FAIR, "{} where the loss is NaN")
    yield from quote(_same_evaluation(facts), STRONG + HINT, "no training loss is a number and {}: no batch was drawn")


def _counted_none(facts: Facts) -> Line | None:
    """A number of rows that falls to 0 and stays there, in a run that ends in NaN."""
    if not facts.symptoms.bad_losses:
        return None
    for run in facts.runs:
        for name, track in run.metrics.items():
            if _COUNT.fullmatch(name) and max(track.values) > 0 and track.values[-1] == 0:
                return Line(run.where(track.lines[-1]), f"{name} falls from {track.values[0]:g} to 0")
    return None


def _same_evaluation(facts: Facts) -> Line | None:
    """An evaluation loss equal to the last digit, beside training losses that are all NaN."""
    symptoms = facts.symptoms
    if not symptoms.bad_losses or symptoms.good_losses or symptoms.points < 2:
        return None
    for run in facts.runs:
        for name, track in run.metrics.items():
            first = track.values[0]
            evaluates = _OF_EVALUATION.search(name) is not None and "loss" in name and isfinite(first)
            if evaluates and len(track.values) >= 2 and {*track.values} == {first} and digits(first) >= DIGITS:
                return Line(run.where(track.lines[-1]), f"{name} stays {first:.6g}")
    return None


RULE = Rule(
    code="SF315",
    fix="check paths, filters and drop_last: print len(dataset) before training, and guard means with max(count, 1)",
    proofs={
        # Numbers of the loader's batches that have no rows, a list.
        "loader.empty_batches": "batches without rows: {}",
    },
    beats=("nan-loss", "environment"),
    observes={
        "data.rows": "the number of rows of the training set",
        "loader.batches": "how many batches the loader gives",
        "loader.error": "what the loader raised when it was read",
    },
    says={
        r"the number of all batches is 0": PROOF,
    },
    warns={
        r"your input ran out of data; interrupting training": PROOF,
    },
)
