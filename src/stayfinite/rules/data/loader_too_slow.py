"""The loader is slower than the model: the GPU waits for data.

## What it means
The device waits for the loader in every step. Training is right and takes several times as long as it has to.

## Why it happens
- `num_workers=0`: rows are read, decoded and put together between two steps, by the process that trains.
- Decoding, tokenizing or augmenting in the loader what could be done once and stored.
- Many small files on a network disk; rows of a compressed file that are read one by one.
- Workers that restart in every epoch.

## How to recognize it
- The device's utilization saws between 0 and 100 %.
- A loop over the loader alone takes as long as training.
- `preflight(..., loader=loader)` measures both.

## How to fix it
- `DataLoader(..., num_workers=4, persistent_workers=True, prefetch_factor=4, pin_memory=True)`; transformers:
  `dataloader_num_workers=4`, `dataloader_persistent_workers=True`.
- Tokenize once: `dataset.map(tokenize, batched=True)`, and store it.
- Larger files that are read in one piece (WebDataset, parquet, memory-mapped arrow).
- Augmentations on the device.

## When it is a false alarm
The first batches pay for cold disk caches. A step measured on a slower machine than the training's hides it, and one
measured without compilation shows it too late.
"""

from statistics import median

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.numbers import finite_metric

SLOWER = 2.0
"""Time of a batch over time of a step."""
FEW, WAITS = 3, 0.5
"""Lines of a log that show it, and the share of a step that is spent waiting."""
LONG = 0.1
"""Seconds per batch below which it does not matter."""


def judge(facts: Facts) -> Clues:
    """Clues: measured times, or those that a log tells."""
    waits, whole = ([value for value, _ in finite_metric(facts, name)] for name in ("data_time", "iter_time"))
    if len(waits) >= FEW and len(waits) == len(whole) and median(waits) > max(LONG, WAITS * median(whole)):
        text = f"of {median(whole):.2g} s a step, {median(waits):.2g} s are spent waiting for data"
        yield Clue(text, STRONG + FAIR, facts.metric("data_time")[0][1], risk=not facts.symptoms.told)
    batch, step = facts.seen("loader.seconds_per_batch"), facts.seen("loader.seconds_per_step")
    if batch is None or step is None or not batch.value > LONG or not batch.value > SLOWER * step.value:
        return
    text = f"a batch takes {batch.value:.2g} s to load and {step.value:.2g} s to train on"
    yield Clue(text, STRONG + 1.0, batch.where)


RULE = Rule(
    code="SF322",
    severity="warning",
    fix="DataLoader(..., num_workers=4, persistent_workers=True, pin_memory=True), and preprocess rows once",
    observes={
        "loader.seconds_per_batch": "the typical time in which the loader gives a batch",
        "loader.seconds_per_step": "the time of a forward and backward pass on one",
    },
    warns={
        r"slow image access detected": STRONG + FAIR,
    },
)
