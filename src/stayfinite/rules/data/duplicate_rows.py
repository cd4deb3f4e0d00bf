"""Many rows are duplicates.

## What it means
A large share of the rows are copies. They count several times in every epoch: the model learns them by heart, the
loss falls in steps, and everything that depends on the number of rows (epochs, schedule, class weights) is wrong.

## Why it happens
- Web data, logs and scraped forums; one page under several addresses.
- Oversampling, augmentation without effect, a join that multiplied rows, a file that was appended to itself.
- A dataset that returns the same item for every index: a closure over the loop's variable, a cached batch, random
  numbers that every DataLoader worker draws from the same seed.
- A cycle over a small dataset with a step count instead of epochs.

## How to recognize it
- A hash of each normalized row: `1 - len(set(hashes)) / len(hashes)`. Above some per cent it matters.
- A training loss that drops at each epoch's border and is far below the validation loss.
- Generated text that repeats training text word for word.

## How to fix it
- Remove copies before splitting: `df.drop_duplicates()`, MinHash for near copies of text.
- Keep one and weight it, where frequency is information.
- Seeds of workers: `numpy` in a `Dataset` needs `worker_init_fn` (`np.random.seed(torch.initial_seed() % 2**32)`);
  Lightning `seed_everything(seed, workers=True)`.
- Look at ten rows of the dataset object itself, not of the file.

## When it is a false alarm
Oversampling a rare class on purpose, several epochs, and short rows that coincide (labels such as "yes") are
duplicates by right.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import Clues, Rule, reaches

MANY = 0.1
"""Share of duplicates that matters; records and letters repeat phrases legitimately."""


def judge(facts: Facts) -> Clues:
    """Clues: the measured share of duplicates."""
    yield from reaches(facts, "data.duplicate_share", MANY, "{:.0%} of the rows are duplicates", proof=0.3)


RULE = Rule(
    code="SF313",
    severity="warning",
    fix=(
        "drop duplicates before splitting (drop_duplicates, MinHash for text), and give DataLoader workers different "
        "seeds"
    ),
    observes={"data.duplicate_share": "the share of rows that are copies of an earlier one, 0 to 1"},
)
