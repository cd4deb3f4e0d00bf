"""The training data is not shuffled.

## What it means
Rows come sorted: by class, by source, by length, by time. Each batch holds one kind, so the gradient points to that
kind for hundreds of steps, then to the next. The model forgets as it goes, the loss goes up and down with the order,
and BatchNorm sees a different world every minute.

## Why it happens
- `DataLoader(..., shuffle=False)`, the default, for the training set.
- An `IterableDataset` or a streamed dataset: `shuffle` has no effect on it, or its buffer is smaller than a run of
  one class.
- A sampler of one's own, or one per rank without `set_epoch`: the same order in every epoch.
- Concatenated sources without interleaving; a resumed run that starts at the head of the data each time.

## How to recognize it
- A loss that saws with the period of the data: low within a class, a jump at its border, the same teeth in every
  epoch.
- A training loss near 0 with a validation accuracy of one class's share.
- A training accuracy that is high for the first batches and next to 0 ever after.
- Keras: a validation accuracy of 0 beside `validation_split`, which takes the last rows before it shuffles.
- Print the labels of some batches: they are all the same.

## How to fix it
- plain torch: `DataLoader(train, batch_size=n, shuffle=True)`; `DistributedSampler(train, shuffle=True)` with
  `sampler.set_epoch(epoch)`.
- transformers shuffles automatically (`train_sampling_strategy="random"`); a streamed dataset does not:
  `dataset.shuffle(seed=42, buffer_size=10_000)`.
- Lightning: `shuffle=True` in `train_dataloader`; with several devices its sampler takes care of the epochs.
- webdataset and the like: shuffle shards *and* a buffer; `interleave_datasets([...], probabilities=[...])` for
  several sources.

## When it is a false alarm
Stateful training over a long text or a series needs the order, evaluation needs none, and data that was shuffled once
on disk may be read in order for a single epoch.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, Clues, Rule, quote, reaches

_EVALUATED = ("val_acc", "val_accuracy", "eval_acc", "eval_accuracy", "test_acc", "test_accuracy", "valid_acc")


_IN_ORDER = (
    r"\bonly (?:examples|samples|images|rows) (?:of|from) (?:a single|one|the same) (?:class|label)|"
    r"\bbatch(?:es)? (?:of|with|contains?) (?:only )?(?:a single|one) (?:class|label)|"
    r"\b(?:data\w*|rows|samples|images|files) (?:is|are|were) (?:sorted|ordered|grouped) by (?:class|label)"
)
_LAST_ROWS = "Keras takes the last rows for validation"
_PERFECT = r"\bval[a-z]*[ _]acc[a-z]*[^.;\n\d]{0,24}(?:100 ?%|1\.0+\b)"


def judge(facts: Facts) -> Clues:
    """Clues: measured runs of one label; an accuracy that is high for the first batches only; rows split in order."""
    yield from reaches(facts, "labels.batch_purity", 0.9, "on average {:.0%} of a batch is one class", proof=0.98)
    yield from quote(facts.mentioned(_IN_ORDER), STRONG + FAIR, "rows come in order: {:.80}")
    symptoms = facts.symptoms
    gone, far = symptoms.contradicted("accuracy gone"), symptoms.contradicted("evaluation far off")
    yield from quote(gone, STRONG + FAIR, "{}: batches of one class each")
    split = facts.mentioned(r"\bvalidation_split\b")
    if split is not None and facts.mentioned(_PERFECT) and facts.mentioned(r"\bshuffle ?= ?False"):
        yield Clue(f"{_LAST_ROWS}, and nothing shuffles them ({split.text.strip()[:60]})", STRONG, split.where)
    if far is not None:
        zeros = sum(value == 0 for name in _EVALUATED for value, _ in facts.metric(name))
        if zeros >= 2:
            yield Clue(f"{far.text}, {zeros} times exactly 0: classes that the training never saw", FAIR + HINT)
        if split is not None:
            yield Clue(f"{_LAST_ROWS}, before it shuffles ({split.text.strip()[:60]})", STRONG, split.where, risk=True)


RULE = Rule(
    code="SF312",
    severity="warning",
    fix=(
        "DataLoader(train, shuffle=True), DistributedSampler with set_epoch, or dataset.shuffle(seed, "
        "buffer_size=10_000) for streams"
    ),
    prior=-4.5,
    observes={
        "labels.batch_purity": "the mean share of the commonest label within a batch, where the data has several, 0 "
        "to 1"
    },
)
