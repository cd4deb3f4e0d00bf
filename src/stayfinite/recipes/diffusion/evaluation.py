"""Evaluate on held-out rows: losses at fixed noise, sampled texts and latents; rows as text."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from stayfinite.recipes.diffusion.corpus import Corpus
from stayfinite.recipes.diffusion.drawing import NoisyRows, fixed_batches
from stayfinite.recipes.diffusion.modes import TASKS, Batch, Objective
from stayfinite.recipes.diffusion.sampling import Sampler
from stayfinite.recipes.diffusion.supply import Scale
from stayfinite.recipes.diffusion.trained import Reader, text_of
from stayfinite.recipes.running.processes import Place
from stayfinite.state.parts import evaluating

ROWS = 64
"""Batch size of an evaluation."""
MOST_TURNS = 64
"""Passes over the rows at most until each loss has occurred; one is enough unless there are only a few rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of an evaluation; NaN for what the mode does not train."""

    loss: float
    text_loss: float
    latent_loss: float
    token_accuracy: float
    """Accuracy of tokens sampled from latents, without padding."""
    token_chance: float
    """The same when always guessing the most frequent token of each place."""
    latent_correlation: float
    """Correlation of latents sampled from texts with the true ones, per channel."""
    examples: tuple[tuple[int, Tensor], ...] = ()
    """Rows and the texts sampled for them."""

    def __str__(self) -> str:
        told = [f"validation loss {self.loss:.4f}"]
        for name, value in (("text", self.text_loss), ("latent", self.latent_loss)):
            told += [f"{name} {value:.4f}"] * math.isfinite(value)
        if math.isfinite(self.token_accuracy):
            told.append(f"tokens right from latents {self.token_accuracy:.1%} (chance {self.token_chance:.1%})")
        if math.isfinite(self.latent_correlation):
            told.append(f"correlation of latents from text {self.latent_correlation:.3f} (chance 0)")
        return ", ".join(told)

    def to_json(self) -> dict[str, float]:
        """By name, without unmeasured scores."""
        names = ("loss", "text_loss", "latent_loss", "token_accuracy", "token_chance", "latent_correlation")
        return {name: value for name in names if math.isfinite(value := getattr(self, name)) or name == "loss"}


@dataclass(frozen=True, kw_only=True)
class Examiner:
    """Evaluates a model on rows of a corpus."""

    corpus: Corpus
    scale: Scale
    rows: NoisyRows
    frequent: Tensor
    """(L) most frequent token at each place of the training texts."""
    objective: Objective
    place: Place
    """Rank of this process. Ranks share the rows, and all get the total scores."""

    def examine(self, sampler: Sampler, indices: Sequence[int]) -> Scores:
        """Compute losses, sample texts from latents and latents from texts. Uses no random numbers of training.

        Arguments:
            sampler: of the evaluated model.
            indices: the rows.
        """
        text_share, latent_share = self.objective.shares
        text, latent = self._losses(sampler, indices)
        weights = self.objective.weights
        total = (weights.text * text if text_share else 0.0) + (weights.latent * latent if latent_share else 0.0)
        examples: list[tuple[int, Tensor]] = []
        right, guessed, tokens, alike = 0, 0, 0, _Correlation(self.corpus.layout.channels)
        place = self.place
        for start in range(0, len(indices), ROWS)[place.rank :: place.count]:
            chosen = list(indices[start : start + ROWS])
            ids, mask = self.corpus.ids[chosen], self.corpus.mask[chosen]
            truth = torch.stack([self.scale.normalize(self.corpus.latent(index)) for index in chosen])
            if text_share:
                written = sampler.text_from(truth, mask, seed=start).cpu()
                right += int(((written == ids) & mask).sum())
                guessed += int(((self.frequent[: ids.shape[1]] == ids) & mask).sum())
                tokens += int(mask.sum())
                examples += list(zip(chosen, written, strict=True))
            if latent_share:
                alike.add(sampler.latent_from(ids, mask, seed=start).cpu(), truth)
        right, guessed, tokens = map(int, place.total([right, guessed, tokens]))
        alike.add_up(place)
        examples = sorted((each for part in place.gathered(examples) for each in part), key=lambda each: each[0])
        return Scores(
            loss=total, text_loss=text if text_share else math.nan, latent_loss=latent if latent_share else math.nan,
            token_accuracy=right / tokens if tokens else math.nan, latent_correlation=alike.value,
            token_chance=guessed / tokens if tokens else math.nan, examples=tuple(examples),
        )  # fmt: skip

    @torch.no_grad()
    def _losses(self, sampler: Sampler, indices: Sequence[int]) -> tuple[float, float]:
        """Mean text and latent loss over the rows that have them.

        If no row happens to have a loss that the mode trains, repeat with other noise: a mean of nothing is NaN, and no
        model would be the best.
        """
        sums, counts = torch.zeros(2, dtype=torch.float64), torch.zeros(2)
        wanted = torch.tensor(self.objective.shares) > 0
        with evaluating(sampler.model):
            for turn in range(MOST_TURNS):
                batches = fixed_batches(self.rows, indices, ROWS, first=turn * len(indices))
                for batch in islice(batches, self.place.rank, None, self.place.count):
                    with sampler.autocast():
                        text, latent = self.objective.rows(batch)
                    sums += torch.stack([text.sum(), latent.sum()]).cpu().double()
                    counts += torch.stack([batch["has_text_loss"].sum(), batch["has_latent_loss"].sum()])
                if bool((torch.tensor(self.place.total(counts.tolist())) > 0)[wanted].all()):
                    break
        means = torch.tensor(self.place.total(sums.tolist())) / torch.tensor(self.place.total(counts.tolist()))
        return float(means[0]), float(means[1])


class _Correlation:
    """Correlation of sampled and true latents over rows and positions, per channel."""

    def __init__(self, channels: int) -> None:
        self._sums = torch.zeros(5, channels, dtype=torch.float64)
        self._count = 0.0

    def add(self, drawn: Tensor, truth: Tensor) -> None:
        """Add a batch, (B, N, C) each."""
        x, y = (each.double().flatten(0, 1) for each in (drawn, truth))
        self._sums += torch.stack([x.sum(0), y.sum(0), (x * x).sum(0), (y * y).sum(0), (x * y).sum(0)])
        self._count += len(x)

    def add_up(self, place: Place) -> None:
        """Sum over all processes."""
        *sums, self._count = place.total([*self._sums.flatten().tolist(), self._count])
        self._sums = torch.tensor(sums, dtype=torch.float64).view_as(self._sums)

    @property
    def value(self) -> float:
        """Mean over channels that vary; NaN if none does."""
        x, y, xx, yy, xy = self._sums / max(1, self._count)
        spread = ((xx - x * x).clamp_min(0) * (yy - y * y).clamp_min(0)).sqrt()
        varies = (yy - y * y) > 1e-8
        if not bool(varies.any()):
            return math.nan
        each = torch.where(spread > 0, (xy - x * y) / spread.clamp_min(1e-300), 0.0)
        return float(each[varies].mean())


def most_frequent(corpus: Corpus, indices: Sequence[int], vocabulary: int) -> Tensor:
    """(L) most frequent token at each place of these rows, without padding."""
    ids, mask = corpus.ids[list(indices)], corpus.mask[list(indices)]
    counts = torch.zeros(ids.shape[1], vocabulary)
    for place in range(ids.shape[1]):
        counts[place] = torch.bincount(ids[mask[:, place], place], minlength=vocabulary)[:vocabulary].float()
    return counts.argmax(1)


def batch_in_words(batch: Batch, corpus: Corpus, read: Reader) -> list[str]:
    """Origin, task and text of each row."""
    times = batch["text_time"].maximum(batch["latent_time"])
    return [
        f"{corpus.where(index)}, {TASKS[task]} at time {time:.2f}: "
        f"{text_of(corpus.ids[index], corpus.mask[index], read)}"
        for index, task, time in zip(batch["row"].tolist(), batch["task"].tolist(), times.tolist(), strict=True)
    ]


def show(scores: Scores, corpus: Corpus, read: Reader, count: int, say: Callable[[str], None]) -> None:
    """Print some texts sampled from latents, with the true ones where they differ."""
    for index, written in scores.examples[:count]:
        mask = corpus.mask[index]
        own, truth = text_of(written, mask, read), text_of(corpus.ids[index], mask, read)
        say(f"  {corpus.rows[index]}: {own[:100]}" + ("" if own == truth else f"\n    not {truth[:100]}"))
