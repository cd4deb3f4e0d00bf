"""From noise to a pair: text from latents, latents from text, or both from nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stayfinite.recipes.diffusion.model import MMDiT
from stayfinite.recipes.diffusion.prediction import Prediction, both
from stayfinite.recipes.diffusion.schedules import Schedule, amounts, hidden

FARTHEST = 12.0
"""Spreads from the mean, beyond which no sample is believed on the way: a first guess, divided by almost 0, may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Draws pairs from a model.

    It draws from a generator of its own, so that sampling in the middle of a training changes nothing of it.
    """

    model: MMDiT
    schedule: Schedule
    prediction: Prediction
    steps: int = 16
    temperature: float = 0.0
    """Of the choice of tokens; 0 takes the likeliest."""
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext

    def text_from(self, latent: Tensor, mask: Tensor, seed: int = 0) -> Tensor:
        """(B, L) tokens that go with the latents (B, N, C), which are in normalized units.

        ``mask`` (B, L) says how long each text is to be.
        """
        return self._draw(mask, seed, latent=latent)[0]

    def latent_from(self, ids: Tensor, mask: Tensor, seed: int = 0) -> Tensor:
        """(B, N, C) latents, in normalized units, that go with the texts (B, L)."""
        return self._draw(mask, seed, ids=ids)[1]

    def pairs(self, mask: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Texts and latents that go with each other, from nothing."""
        return self._draw(mask, seed)

    @torch.no_grad()
    def sureness(self, ids: Tensor, mask: Tensor, latent: Tensor, times: int = 4) -> Tensor:
        """(B) how well a text goes with a latent: the mean log-probability of tokens that are hidden and guessed."""
        model, device = self.model, self.model.text_place.device
        ids, mask, latent = ids.to(device), mask.to(device), latent.to(device)
        still, total = torch.zeros(len(ids), device=device), torch.zeros(len(ids), device=device)
        for turn in range(times):  # every token is hidden once, so many others at a time
            covered = mask & (torch.arange(ids.shape[1], device=device) % times == turn)
            time = torch.full((len(ids),), 1.0 / times, device=device)
            with self.autocast():
                logits, _ = model(ids.masked_fill(covered, model.hidden_token), mask, latent, time, still)
            each = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
            total += torch.where(covered, each, 0.0).sum(1)
        return total / mask.sum(1).clamp_min(1)

    @torch.no_grad()
    def _draw(
        self, mask: Tensor, seed: int, *, ids: Tensor | None = None, latent: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        model, device = self.model, self.model.text_place.device
        chance = torch.Generator().manual_seed(seed)
        rows, mask = len(mask), mask.to(device)
        shape = (rows, model.shape.positions, model.shape.channels)
        text_given, latent_given = ids is not None, latent is not None
        text = torch.full(mask.shape, model.hidden_token, device=device) if ids is None else ids.to(device)
        pixels = torch.randn(shape, generator=chance).to(device) if latent is None else latent.to(device).float()
        training = model.training
        model.eval()
        try:
            for step in range(self.steps, 0, -1):
                now, then = (torch.full((rows,), at / self.steps, device=device) for at in (step, step - 1))
                with self.autocast():
                    logits, said = model(
                        text, mask, pixels, now * (not text_given), now * (not latent_given)
                    )  # a side that is given stands at time 0
                if not text_given:
                    text = self._uncover(text, mask, logits, step, chance)
                if not latent_given:
                    pixels = self._less_noisy(pixels, said, now, then, last=step == 1)
        finally:
            model.train(training)
        return torch.where(mask, text, 0), pixels

    def _less_noisy(self, noisy: Tensor, said: Tensor, now: Tensor, then: Tensor, *, last: bool) -> Tensor:
        """One step of DDIM: as if what the model says were true."""
        signal, sigma = (each[:, None, None] for each in amounts(self.schedule, now))
        sample, _ = both(self.prediction, said, noisy, signal, sigma)
        sample = torch.nan_to_num(sample, posinf=FARTHEST, neginf=-FARTHEST).clamp(-FARTHEST, FARTHEST)
        if last:
            return sample
        noise = (noisy - signal * sample) / sigma
        signal, sigma = (each[:, None, None] for each in amounts(self.schedule, then))
        return signal * sample + sigma * noise

    def _uncover(self, text: Tensor, mask: Tensor, logits: Tensor, step: int, chance: torch.Generator) -> Tensor:
        """Write down the tokens that the model is surest of, as many as the next time step has uncovered."""
        if self.temperature > 0:
            uniform = torch.rand(logits.shape, generator=chance).clamp_(1e-9, 1 - 1e-7).to(logits.device)
            logits = logits / self.temperature - (-uniform.log()).log()
        sureness, chosen = logits.log_softmax(-1).max(-1)
        still = (text == self.model.hidden_token) & mask
        share = float(hidden(self.schedule, torch.tensor((step - 1) / self.steps))) if step > 1 else 0.0
        stay = (share * mask.sum(1)).floor().long()  # so many of each row remain hidden
        count = (still.sum(1) - stay).clamp_min(0)
        ranks = sureness.masked_fill(~still, -torch.inf).argsort(1, descending=True).argsort(1)
        return torch.where(still & (ranks < count[:, None]), chosen, text)
