"""Training and validation pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.built_in import Pair, store_records
from stayfinite.recipes.seq2seq.normalizing import Form, normalizer, self_test
from stayfinite.recipes.seq2seq.pairs import clean, read_pairs, split, tidy, to_score
from stayfinite.recipes.seq2seq.tables import Columns

BUILT_IN_PAIRS = 4000


def pairs_for(
    train: Sequence[str] | None,
    val: Sequence[str],
    columns: Columns,
    *,
    forms: Sequence[Form],
    max_ratio: float,
    share: float,
    say: Callable[[str], None],
) -> tuple[list[Pair], list[Pair]]:
    """Normalized pairs for training and validation.

    Arguments:
        train: files; None for the built-in task.
        val: validation files; without any, a share of the pairs is held out.
        forms: of normalization; each is self-tested first.

    Raises:
        UsageError: nothing left to train or validate on, or unreadable files.
    """
    if wrong := self_test(forms):
        raise UsageError(f"--normalize {' '.join(forms)}: {'; '.join(wrong)}", fix="use one of them")
    normalize = normalizer(forms)
    read = store_records(BUILT_IN_PAIRS) if train is None else read_pairs(train, columns, say)
    kept = clean(read, normalize, max_ratio=max_ratio)
    if not kept.pairs:
        raise UsageError(f"{', '.join(train or ())}: nothing left to train on: {kept}", fix="check the data")
    if val:
        training = kept.pairs
        validation = [tidy(pair, normalize) for pair in to_score(read_pairs(val, columns, say))]
    else:
        training, validation = split(kept.pairs, share)
    if not validation:
        raise UsageError("no pairs left for validation", fix="give some with --val, or raise --val-share")
    say(f"read {kept}; training on {len(training):,}, validation on {len(validation):,}")
    trained_on = {pair.source for pair in training}
    if both := sum(pair.source in trained_on for pair in validation):
        say(f"  {both:,} validation sources are in the training data: scores are too high")
    return training, validation
