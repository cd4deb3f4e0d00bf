"""Sample text from latents, latents from text, or pairs."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stayfinite.recipes.diffusion.model import MMDiT
from stayfinite.recipes.diffusion.modes import Prediction, Schedule, amounts, both, hidden
from stayfinite.state.parts import evaluating

FARTHEST = 12.0
"""Clamp for intermediate samples, in standard deviations: a first estimate is divided by almost 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Samples from a model with its own generator, so that training is unaffected."""

    model: MMDiT
    schedule: Schedule
    prediction: Prediction
    steps: int = 16
    temperature: float = 0.0
    """Token temperature; 0 is greedy."""
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext

    def text_from(self, latent: Tensor, mask: Tensor, seed: int = 0) -> Tensor:
        """(B, L) tokens for latents (B, N, C) in normalized units. ``mask`` (B, L) gives the text lengths."""
        return self._draw(mask, seed, latent=latent)[0]

    def latent_from(self, ids: Tensor, mask: Tensor, seed: int = 0) -> Tensor:
        """(B, N, C) latents in normalized units for texts (B, L)."""
        return self._draw(mask, seed, ids=ids)[1]

    def pairs(self, mask: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Unconditional texts and latents."""
        return self._draw(mask, seed)

    @torch.no_grad()
    def sureness(self, ids: Tensor, mask: Tensor, latent: Tensor, times: int = 4) -> Tensor:
        """(B) mean log-probability of the text's tokens given the latent, each masked in turn."""
        model, device = self.model, self.model.text_place.device
        ids, mask, latent = ids.to(device), mask.to(device), latent.to(device)
        still, total = torch.zeros(len(ids), device=device), torch.zeros(len(ids), device=device)
        for turn in range(times):  # every token is hidden once
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
        with evaluating(model):
            for step in range(self.steps, 0, -1):
                now, then = (torch.full((rows,), at / self.steps, device=device) for at in (step, step - 1))
                with self.autocast():
                    # A given modality is at time 0.
                    logits, said = model(text, mask, pixels, now * (not text_given), now * (not latent_given))
                if not text_given:
                    text = self._uncover(text, mask, logits, step, chance)
                if not latent_given:
                    pixels = self._less_noisy(pixels, said, now, then, last=step == 1)
        return torch.where(mask, text, 0), pixels

    def _less_noisy(self, noisy: Tensor, said: Tensor, now: Tensor, then: Tensor, *, last: bool) -> Tensor:
        """One DDIM step."""
        signal, sigma = (each[:, None, None] for each in amounts(self.schedule, now))
        sample, _ = both(self.prediction, said, noisy, signal, sigma)
        sample = torch.nan_to_num(sample, posinf=FARTHEST, neginf=-FARTHEST).clamp(-FARTHEST, FARTHEST)
        if last:
            return sample
        noise = (noisy - signal * sample) / sigma
        signal, sigma = (each[:, None, None] for each in amounts(self.schedule, then))
        return signal * sample + sigma * noise

    def _uncover(self, text: Tensor, mask: Tensor, logits: Tensor, step: int, chance: torch.Generator) -> Tensor:
        """Reveal the most confident tokens, as many as the next time step requires."""
        if self.temperature > 0:
            uniform = torch.rand(logits.shape, generator=chance).clamp_(1e-9, 1 - 1e-7).to(logits.device)
            logits = logits / self.temperature - (-uniform.log()).log()
        sureness, chosen = logits.log_softmax(-1).max(-1)
        still = (text == self.model.hidden_token) & mask
        share = float(hidden(self.schedule, torch.tensor((step - 1) / self.steps))) if step > 1 else 0.0
        stay = (share * mask.sum(1)).floor().long()  # tokens per row that stay hidden
        count = (still.sum(1) - stay).clamp_min(0)
        ranks = sureness.masked_fill(~still, -torch.inf).argsort(1, descending=True).argsort(1)
        return torch.where(still & (ranks < count[:, None]), chosen, text)
