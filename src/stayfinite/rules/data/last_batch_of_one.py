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
- A batch size that leaves another remainder, or `GroupNorm` or `LayerNorm` in place of `BatchNorm`.
- `SyncBatchNorm` over several ranks sees the rows of all of them.

## When it is a false alarm
A sampler of one's own may leave another remainder than the dataset's length says. In evaluation mode the running
statistics are used, and one row is enough.
"""

from stayfinite.core.series import RunSeries
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, STRONG, Clue, Clues, Rule, quote

ONE_VALUE = r"expected more than 1 value per channel when training"


def judge(facts: Facts) -> Clues:
    """A look at loader and model tells; so does BatchNorm's refusal where every batch but the epoch's last worked."""
    fails = facts.seen("loader.last_batch_fails")
    if fails is not None and fails.value:
        text = f"{fails.value} rows leave a last batch of one, which {fails.where} cannot normalize"
        yield Clue(text, PROOF, fails.where)
    refused = facts.said(ONE_VALUE)
    if refused is None:  # the traceback is cut before its last line
        yield from quote(facts.said(r"\b_verify_batch_size\("), STRONG)
    if refused is not None and any(map(_ends_an_epoch, facts.runs)):
        yield Clue(f"at the end of an epoch: {refused.text.strip().splitlines()[-1]}", PROOF, refused.where)


def _ends_an_epoch(run: RunSeries) -> bool:
    """Whether the last logged step is the last one, or the one before it."""
    last = None if run.last is None else run.last.step
    return last is not None and run.total_steps is not None and run.total_steps > 2 and last >= run.total_steps - 1


RULE = Rule(
    code="SF321",
    fix="DataLoader(..., drop_last=True), or a batch size that leaves another remainder",
    beats=("wrong-mode",),
    observes={
        "loader.last_batch_fails": "rows of a dataset whose last batch is one row with which the model fails, else 0"
    },
)
