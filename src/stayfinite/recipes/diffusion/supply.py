"""Read a directory, check it, split by file, normalize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from stayfinite.errors import NotReady, UsageError
from stayfinite.recipes.diffusion.corpus import Corpus, joined, read_corpus
from stayfinite.recipes.diffusion.survey import Scale, not_in, scale_of, split_by_file, survey

BadRows = Literal["stop", "skip", "keep"]
"""What to do with unusable rows."""


@dataclass(frozen=True, kw_only=True)
class Supply:
    """Training and validation rows."""

    corpus: Corpus
    training: list[int]
    validation: list[int]
    scale: Scale

    @property
    def highest_id(self) -> int:
        """Highest token id, without padding."""
        return int(torch.where(self.corpus.mask, self.corpus.ids, 0).max())

    @property
    def lengths(self) -> tuple[int, ...]:
        """Quantiles of the training text lengths: 0 %, 5 %, ... 100 %."""
        ordered = self.corpus.lengths[self.training].sort().values
        return tuple(int(ordered[round(share * (len(ordered) - 1) / 20)]) for share in range(21))


def read_supply(
    data: Path,
    val: Path | None,
    *,
    val_share: float,
    patch: int,
    length: int | None,
    bad_rows: BadRows,
    say: Callable[[str], None],
) -> Supply:
    """Read, check every row, split.

    Arguments:
        data: training directory.
        val: validation directory; default: a share of the files.
        length: maximum tokens per text.
        bad_rows: `stop` refuses to start, `skip` drops them, `keep` trains on them.

    Raises:
        UsageError: a file is missing, unreadable or inconsistent.
        NotReady: rows cannot be trained on.
    """
    corpus = read_corpus(data, patch=patch, length=length)
    if val is None:
        training, validation = split_by_file(corpus, val_share)
        if not validation:
            raise UsageError(
                f"{data} holds one pair of files; training and validation need different files",
                fix="split the rows into several files, or give --val",
            )
    else:
        own = len(corpus)
        corpus = joined(corpus, read_corpus(val, patch=patch, length=length))
        training, validation = list(range(own)), list(range(own, len(corpus)))
    if corpus.cut:
        say(f"{corpus.cut:,} of {len(corpus):,} texts are truncated to {corpus.ids.shape[1]} tokens")
    looked = survey(corpus)
    _judge(looked.bad, bad_rows, say)
    validation = looked.good(validation)
    healthy = looked.good(training)
    known = {looked.keys[index] for index in training}
    new = not_in(looked.keys, validation, known)
    if len(new) < len(validation):
        say(f"dropped {len(validation) - len(new):,} validation rows: their text and latent are in the training data")
    training = training if bad_rows == "keep" else healthy
    for rows, what in ((healthy, "training"), (new, "validation")):
        if not rows:
            raise UsageError(f"no rows left for {what}", fix="more files, or --val with other data")
    say(_in_words(corpus, training, new))
    return Supply(corpus=corpus, training=training, validation=new, scale=scale_of(corpus, healthy))


def _judge(bad: dict[int, str], bad_rows: BadRows, say: Callable[[str], None]) -> None:
    if not bad:
        return
    named = "; ".join(list(bad.values())[:5]) + (f"; and {len(bad) - 5} more" if len(bad) > 5 else "")
    if bad_rows == "stop":
        raise NotReady(
            f"{len(bad)} rows cannot be trained on: {named}",
            fix="save them again. --bad-rows skip drops them, --bad-rows keep lets the guard handle them",
        )
    done = "are dropped" if bad_rows == "skip" else "are kept"
    say(f"{len(bad)} rows {done}: {named}")


def _in_words(corpus: Corpus, training: Sequence[int], validation: Sequence[int]) -> str:
    files = len({corpus.rows[index].pair.name for index in training})
    layout = corpus.layout
    return (
        f"training on {len(training):,} rows of {files:,} files; validation {len(validation):,}. Texts up to "
        f"{corpus.ids.shape[1]} tokens, latents of {layout.positions} positions x {layout.channels} channels"
    )
