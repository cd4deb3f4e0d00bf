"""Read a directory, look at every row (broken, duplicated, absurdly large), split by file, normalize."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from stayfinite.errors import NotReady, UsageError
from stayfinite.recipes.diffusion.corpus import Corpus, read_corpus

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


def read_supply(config: Any, data: Path, say: Callable[[str], None]) -> Supply:
    """Read, check every row, split.

    Arguments:
        config: has ``val``, a directory (default: a share of the files, ``val_share``), ``patch``, ``max_length``
            (tokens per text), and ``bad_rows``: `stop` refuses to start, `skip` drops them, `keep` trains on them.
        data: training directory.

    Raises:
        UsageError: a file is missing, unreadable or inconsistent.
        NotReady: rows cannot be trained on.
    """
    directories = [data] if config.val is None else [data, Path(config.val)]
    corpus = read_corpus(*directories, patch=config.patch, length=config.max_length)
    if config.val is None:
        training, validation = split_by_file(corpus, config.val_share)
        if not validation:
            raise UsageError(
                f"{data} holds one pair of files; training and validation need different files",
                fix="split the rows into several files, or give --val",
            )
    else:
        training, validation = list(range(corpus.own)), list(range(corpus.own, len(corpus)))
    if corpus.cut:
        say(f"{corpus.cut:,} of {len(corpus):,} texts are truncated to {corpus.ids.shape[1]} tokens")
    looked = survey(corpus)
    _judge(looked.bad, config.bad_rows, say)
    validation = looked.good(validation)
    healthy = looked.good(training)
    known = {looked.keys[index] for index in training}
    new = [index for index in validation if looked.keys[index] not in known]
    if len(new) < len(validation):
        say(f"dropped {len(validation) - len(new):,} validation rows: their text and latent are in the training data")
    training = training if config.bad_rows == "keep" else healthy
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


ABSURD = 1000.0
"""Multiple of the usual row size above which a latent is broken."""
LEAST_SPREAD = 1e-4
"""Channels with less than this share of the largest spread are not scaled up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Result of checking every row."""

    bad: dict[int, str]
    """Unusable rows with the reason, including the file."""
    keys: list[bytes]
    """Hash of each row's text and latent."""

    def good(self, indices: Sequence[int]) -> list[int]:
        return [index for index in indices if index not in self.bad]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Mean and standard deviation per channel, for normalization."""

    mean: Tensor
    spread: Tensor

    def normalize(self, latent: Tensor) -> Tensor:
        """(..., channels) -> normalized."""
        return (latent - self.mean) / self.spread

    def restore(self, normal: Tensor) -> Tensor:
        """(..., channels) -> as in the file."""
        return normal * self.spread + self.mean


def survey(corpus: Corpus) -> Survey:
    """Read every row once. Raises UsageError if a file is unreadable."""
    bad: dict[int, str] = {}
    keys: list[bytes] = []
    sizes = torch.zeros(len(corpus), dtype=torch.float64)
    for index in range(len(corpus)):
        latent = corpus.latent(index)
        mask = corpus.mask[index]
        text = torch.where(mask, corpus.ids[index], -1)
        keys.append(hashlib.sha256(text.numpy().tobytes() + latent.numpy().tobytes()).digest())
        wrong = int((~latent.isfinite()).sum())
        if wrong:
            bad[index] = f"{corpus.where(index)}: {wrong} of {latent.numel()} values are NaN or inf in float32"
        elif not mask.any():
            row = corpus.rows[index]
            bad[index] = f"{row.within(row.pair.tokens)}: no tokens, attention_mask is all 0"
        sizes[index] = latent.double().square().mean().sqrt()
    usual = sizes[sizes.isfinite() & (sizes > 0)]
    if len(usual):
        usually = float(usual.median())
        for index in (sizes.isfinite() & (sizes > ABSURD * usually)).nonzero().flatten().tolist():
            size = f"values of about {float(sizes[index]):.2g} (other rows {usually:.2g})"
            bad.setdefault(index, f"{corpus.where(index)}: {size}")
    return Survey(bad=bad, keys=keys)


def scale_of(corpus: Corpus, indices: Sequence[int]) -> Scale:
    """Mean and standard deviation per channel over these rows."""
    channels = corpus.layout.channels
    total, squares, count = torch.zeros(channels).double(), torch.zeros(channels).double(), 0
    for index in indices:
        latent = corpus.latent(index).double()
        total, squares, count = total + latent.sum(0), squares + latent.square().sum(0), count + len(latent)
    mean = total / max(1, count)
    spread = (squares / max(1, count) - mean.square()).clamp_min(0).sqrt()
    widest = float(spread.max())
    # A constant channel keeps its unit: dividing by almost 0 would amplify rounding errors.
    spread = torch.where(spread > LEAST_SPREAD * widest, spread, torch.full_like(spread, widest or 1.0))
    return Scale(mean=mean.float(), spread=spread.float())


def split_by_file(corpus: Corpus, share: float) -> tuple[list[int], list[int]]:
    """Training and validation rows. A file is on one side only, the same in every run."""
    names = sorted({row.pair.name for row in corpus.rows}, key=lambda name: hashlib.sha256(name.encode()).digest())
    kept_back = set(names[: max(1, round(share * len(names)))]) if len(names) > 1 else set()
    sides: tuple[list[int], list[int]] = [], []
    for index, row in enumerate(corpus.rows):
        sides[row.pair.name in kept_back].append(index)
    return sides
