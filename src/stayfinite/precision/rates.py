"""Peak compute rates and memory bandwidth of cards.

Dense TFLOP/s of matrix products with fp32 accumulation, and GB/s, from the vendors' data sheets: NVIDIA T4, V100
(SXM2), A10, A100, L4, L40S, H100 (SXM), H200, B200, GeForce RTX 3090 and 4090; AMD MI300X. Training reaches only the
share given by EFFICIENCY.
"""

from __future__ import annotations

from dataclasses import dataclass

from stayfinite.rules.cards import Card

EFFICIENCY = {"fp32": 0.7, "tf32": 0.6, "bf16": 0.6, "fp16": 0.6, "fp8": 0.5, "fp8-rowwise": 0.4}
"""Share of the peak that products of usual size reach: assumed, not measured."""
MEMORY = 0.75
"""Share of the bandwidth that elementwise operators reach."""
LAUNCH = 4e-6
"""Minimum seconds per operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of one card."""

    fp32: float
    tf32: float = 0.0
    half: float = 0.0
    fp8: float = 0.0
    bandwidth: float

    def flops(self, kind: str) -> float:
        """Achieved FLOP/s in a format; 0 if the card lacks it."""
        peak = {"fp32": self.fp32, "tf32": self.tf32, "bf16": self.half, "fp16": self.half}.get(kind, self.fp8)
        return peak * 1e12 * EFFICIENCY[kind]

    @property
    def bytes(self) -> float:
        """Achieved bytes per second."""
        return self.bandwidth * 1e9 * MEMORY


_RATES = {
    "T4": Rates(fp32=8.1, half=65, bandwidth=320),
    "V100": Rates(fp32=15.7, half=125, bandwidth=900),
    "A10": Rates(fp32=31.2, tf32=62.5, half=125, bandwidth=600),
    "A100": Rates(fp32=19.5, tf32=156, half=312, bandwidth=1555),
    "L4": Rates(fp32=30.3, tf32=60, half=121, fp8=242, bandwidth=300),
    "L40S": Rates(fp32=91.6, tf32=183, half=362, fp8=733, bandwidth=864),
    "H100": Rates(fp32=67, tf32=494, half=989, fp8=1979, bandwidth=3350),
    "H200": Rates(fp32=67, tf32=494, half=989, fp8=1979, bandwidth=4800),
    "B200": Rates(fp32=75, tf32=1125, half=2250, fp8=4500, bandwidth=8000),
    "RTX 3090": Rates(fp32=35.6, tf32=35.6, half=71, bandwidth=936),
    "RTX 4090": Rates(fp32=82.6, tf32=82.6, half=165, fp8=330, bandwidth=1008),
    "MI300X": Rates(fp32=163.4, tf32=653.7, half=1307, fp8=2614, bandwidth=5300),
}


def rates_of(card: Card) -> Rates | None:
    """The rates of a card, or None if unknown."""
    return _RATES.get(card.name)
