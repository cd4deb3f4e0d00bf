"""The validation set shares rows or groups with the training set.

## What it means
The validation score measures memory instead of generalization. It looks too good, keeps improving while the true
quality falls, and picks the wrong checkpoint. Nothing in the loss curve shows it.

## Why it happens
- A random split over rows that belong together: frames of one video, recordings of one speaker, several pictures of
  one patient, paraphrases.
- Augmenting, oversampling or chunking before the split: copies of one row land on both sides.
- Duplicates in the source, which web data is full of.
- Splitting again with another seed on resume; `eval_dataset=train_dataset` left over from a test.
- A time series split at random: tomorrow is in the training set.
- Statistics (scaler, vocabulary, feature selection) fitted on all rows before the split.

## How to recognize it
- `stayfinite check --data train.csv --val val.csv`, which compares texts and ids.
- A hash of each normalized row, and the intersection: `len(set(map(hash_row, train)) & set(map(hash_row, val)))`.
- A validation score far above that on data from another source or time.
- A validation loss equal to the training loss to two digits through many epochs.

## How to fix it
- Split first, by group: sklearn `GroupShuffleSplit`, `GroupKFold`, or by time; `StratifiedGroupKFold` for rare
  classes.
- Remove duplicates before the split, near ones with MinHash for text or a perceptual hash for pictures.
- datasets: `dataset.train_test_split(test_size=0.1, seed=42)`, once, and save both parts.
- Fit scalers and vocabularies on the training part alone.

## When it is a false alarm
Short rows (yes/no questions, common phrases) coincide without any leak; common boilerplate is not a leak when the
labels do not follow from it.
"""

from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule, quote, reaches

_SAME = (
    r"eval_dataset ?[=:] ?(?:self\.)?train_dataset|"
    r"val(?:id\w*)?_(?:data|set|loader|dataset|file|path) ?[=:] ?(?:self\.)?train_(?:data|set|loader|dataset|file|"
    r"path)\b"
)

FEW = 0.005
"""Share of common rows that does not affect scores; a few coincide in any large corpus."""


def judge(facts: Facts) -> Clues:
    """Clues: a measured overlap, or settings and notes that use one dataset for both."""
    seen = facts.seen("data.overlap_share")
    if seen is not None and seen.value > FEW:
        yield Clue(
            f"{seen.value:.1%} of the validation rows are in the training set",
            PROOF if seen.value >= 0.01 else STRONG,
            seen.where,
        )
    yield from reaches(
        facts,
        "data.id_overlap_share",
        FEW,
        "{:.1%} of the validation rows share an id with the training set",
        proof=0.01,
    )
    # It breaks no loss, so it does not explain other trouble.
    trouble = bool(facts.symptoms.trouble)
    yield from quote(facts.symptoms.contradicted("one set for both"), STRONG + HINT)
    same = facts.mentioned(_SAME) or _one_file(facts)
    if same is not None:
        text = f"the same set for both: {same.text.strip()[:100]}"
        yield Clue(text, HINT if trouble else STRONG + 1.0, same.where, risk=True)


def _one_file(facts: Facts) -> Line | None:
    train = facts.settings.find("train_file", "train_data", "train_path")
    val = facts.settings.find("validation_file", "val_file", "val_data", "eval_file", "val_path")
    if train is None or val is None or not isinstance(train.value, str) or train.value != val.value:
        return None
    return Line(val.where, f"{train.name} and {val.name} are {train.value}")


RULE = Rule(
    code="SF308",
    severity="warning",
    fix="remove duplicates, then split once by group (GroupShuffleSplit) or by time, before augmenting",
    observes={
        "data.overlap_share": "the share of validation rows that are in the training set too, 0 to 1",
        "data.id_overlap_share": "the share of validation rows whose id or group the training set has too, 0 to 1",
    },
)
