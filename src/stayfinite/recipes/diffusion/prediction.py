"""Prediction targets for a noisy latent: noise, sample, or velocity."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Prediction = Literal["epsilon", "x0", "v"]


def target(kind: Prediction, sample: Tensor, noise: Tensor, signal: Tensor, sigma: Tensor) -> Tensor:
    """The model's target; ``signal`` and ``sigma`` are the amplitudes of sample and noise."""
    if kind == "epsilon":
        return noise
    return sample if kind == "x0" else signal * noise - sigma * sample


def both(kind: Prediction, said: Tensor, noisy: Tensor, signal: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Sample and noise from the model's prediction."""
    if kind == "epsilon":
        return (noisy - sigma * said) / signal, said
    if kind == "x0":
        return said, (noisy - signal * said) / sigma
    return signal * noisy - sigma * said, sigma * noisy + signal * said
