"""Rows as text, for evaluations and incidents."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from stayfinite.recipes.diffusion.corpus import Corpus
from stayfinite.recipes.diffusion.drawing import Batch
from stayfinite.recipes.diffusion.evaluation import Scores
from stayfinite.recipes.diffusion.modes import TASKS
from stayfinite.recipes.diffusion.words import Reader


def batch_in_words(batch: Batch, corpus: Corpus, read: Reader) -> list[str]:
    """Origin, task and text of each row."""
    told = []
    for index, task, time in zip(batch["row"], batch["task"], _times(batch), strict=True):
        ids, mask = corpus.ids[int(index)], corpus.mask[int(index)]
        told.append(
            f"{corpus.where(int(index))}, {TASKS[int(task)]} at time {float(time):.2f}: {text_of(ids, mask, read)}"
        )
    return told


def show(scores: Scores, corpus: Corpus, read: Reader, count: int, say: Callable[[str], None]) -> None:
    """Print some texts sampled from latents, with the true ones where they differ."""
    for index, written in scores.examples[:count]:
        mask = corpus.mask[index]
        own, truth = text_of(written, mask, read), text_of(corpus.ids[index], mask, read)
        say(f"  {corpus.rows[index]}: {own[:100]}" + ("" if own == truth else f"\n    not {truth[:100]}"))


def text_of(ids: Tensor, mask: Tensor, read: Reader) -> str:
    """A row's text without padding."""
    return read(ids[mask].tolist())


def _times(batch: Batch) -> Tensor:
    return batch["text_time"].maximum(batch["latent_time"])
