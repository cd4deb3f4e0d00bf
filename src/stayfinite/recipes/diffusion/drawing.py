"""Add noise to rows, each from its own seed, so that a batch determines its loss.

The sampler draws a seed for each place in the epoch. So the noise is the same in one process or many, with or without
workers, and after a resume within an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.corpus import Corpus
from stayfinite.recipes.diffusion.modes import TASKS, Batch, Mode, Schedule, hidden, task_of
from stayfinite.recipes.diffusion.supply import Scale
from stayfinite.recipes.running.sharing import SharedBatches

SEED = 1_000_003
"""Base seed of the noise at evaluations."""


class Key(int):
    """Row index with the seed of its noise and its place in the epoch.

    An int, so that an unreadable row is recognized in the next epoch, whatever its noise.
    """

    seed: int
    turn: int

    def __new__(cls, row: int, seed: int, turn: int) -> Key:
        key = super().__new__(cls, row)
        key.seed, key.turn = seed, turn
        return key

    def __reduce__(self) -> tuple[type[Key], tuple[int, int, int]]:
        return Key, (int(self), self.seed, self.turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How noise is added to rows."""

    mode: Mode
    schedule: Schedule

    def draw(self, ids: Tensor, mask: Tensor, latent: Tensor, seed: int, turn: int) -> Batch:
        """One row with the noise of this seed.

        Arguments:
            ids: (L) text.
            mask: (L) false for padding.
            latent: (N, C) normalized.
        """
        generator = torch.Generator().manual_seed(seed)
        task = task_of(self.mode, turn, generator)
        time = torch.rand((), generator=generator)
        chance = torch.rand(ids.shape, generator=generator)
        noise = torch.randn(latent.shape, generator=generator)
        text_time = torch.zeros(()) if task == "t2l" else time
        latent_time = torch.zeros(()) if task == "l2t" else time
        covered = chance < hidden(self.schedule, time)
        # At least one: a row without hidden tokens teaches nothing.
        covered[chance.masked_fill(~mask, 2.0).argmin()] = True
        return {
            "ids": ids,
            "mask": mask,
            "covered": covered & mask & torch.tensor(task != "t2l"),
            "latent": latent,
            "noise": noise,
            "text_time": text_time,
            "latent_time": latent_time,
            "has_text_loss": torch.tensor(task != "t2l"),
            "has_latent_loss": torch.tensor(task != "l2t"),
            "task": torch.tensor(TASKS.index(task)),
        }


@dataclass(eq=False)
class NoisyRows(Dataset[Batch]):
    """Normalized rows with noise.

    Arguments:
        scale: of the training rows.
        strict: raise on a non-finite latent, naming its file; otherwise return it.
    """

    corpus: Corpus
    scale: Scale
    noise: Noise
    strict: bool = True

    def __getitem__(self, key: Key) -> Batch:
        index, corpus = int(key), self.corpus
        try:
            latent = self.scale.normalize(corpus.latent(index))
        except UsageError as error:
            raise UsageError(error.message) from error  # one line, since the guard quotes it
        if self.strict and not bool(latent.isfinite().all()):
            raise UsageError(f"{corpus.where(index)} is now NaN or inf")
        row = self.noise.draw(corpus.ids[index], corpus.mask[index], latent, key.seed, key.turn)
        return {**row, "row": torch.tensor(index)}


class GlobalBatches(SharedBatches):
    """Batches of rows, each with its noise; the rows of a step do not depend on the number of processes.

    An incomplete last batch is dropped.

    Arguments:
        indices: the rows.
        batch_size: rows per batch, over all processes.
    """

    def __init__(self, indices: Sequence[int], batch_size: int, **shared: int) -> None:
        super().__init__(len(indices), batch_size, **shared)
        self._indices = torch.tensor(list(indices), dtype=torch.int64)
        if len(self) == 0:
            over = f" over {self.ranks} ranks" if self.ranks > 1 else ""
            raise UsageError(
                f"a batch of {batch_size} rows{over} exceeds the {len(indices)} training rows",
                fix=f"--batch-size {max(1, len(indices) // self.ranks)}",
            )

    def __len__(self) -> int:
        return self.rows // self.size

    def __iter__(self) -> Iterator[list[Key]]:
        order = self._indices[self.order()].tolist()
        seeds = torch.randint(2**62, (len(order),), generator=self.generator).tolist()
        for batch in range(len(self)):
            own = range(batch * self.size + self.rank, (batch + 1) * self.size, self.ranks)
            yield [Key(order[place], seeds[place], place) for place in own]


def fixed_batches(rows: NoisyRows, indices: Sequence[int], size: int, *, first: int = 0) -> Iterator[Batch]:
    """The rows in order, each with the same noise at every evaluation.

    Arguments:
        first: offset of the noise seeds; another one gives other noise.
    """
    for start in range(0, len(indices), size):
        chosen = indices[start : start + size]
        places = range(first + start, first + start + len(chosen))
        yield default_collate(
            [rows[Key(index, SEED + place, place)] for place, index in zip(places, chosen, strict=True)]
        )


def tokens_in(batch: Batch) -> Tensor:
    """Tokens and latent positions in a batch, without padding."""
    return batch["mask"].sum() + batch["latent"].shape[0] * batch["latent"].shape[1]
