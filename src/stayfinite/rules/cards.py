"""GPUs: supported number formats and memory.

Compute capabilities are those of NVIDIA's list (developer.nvidia.com/cuda-gpus); number formats follow from the
architecture (CUDA programming guide, arithmetic throughput; whitepapers of Volta, Turing, Ampere, Ada, Hopper and
Blackwell). Memory is what the driver reports with its default ECC setting, which is less than what is sold on cards
with GDDR memory. AMD's rows are from the data sheets of the Instinct series and ROCm's table of supported types.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.errors import UsageError

AMPERE = (8, 0)
"""The first architecture with bf16, TF32 and FlashAttention 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU."""

    name: str
    architecture: str
    capability: tuple[int, int]
    """CUDA compute capability; (0, 0) for AMD."""
    memory_gib: float
    """As the driver reports; the smallest of several sizes unless another was named."""
    sizes: tuple[float, ...] = ()
    """All sizes sold under this name, if there are several."""
    amd: bool = False

    @property
    def is_none(self) -> bool:
        """Whether this is a machine without a GPU: `--gpu none`."""
        return self is NO_CARD

    @property
    def with_article(self) -> str:
        """`a T4`, `an A100`."""
        return f"{'an' if self.name[:1] in 'AEFHILMNORSX' else 'a'} {self.name}"

    @property
    def bf16(self) -> bool:
        """Whether the hardware supports bf16."""
        return self.amd or self.capability >= AMPERE

    @property
    def tf32(self) -> bool:
        """Whether it has TF32 matrix products."""
        return self.architecture == "CDNA 3" if self.amd else self.capability >= AMPERE

    @property
    def fp8(self) -> bool:
        """Whether it has fp8 products: Ada, Hopper, Blackwell, CDNA 3 and 4."""
        return self.architecture in ("CDNA 3", "CDNA 4") if self.amd else self.capability >= (8, 9)

    @property
    def mxfp8(self) -> bool:
        """Whether it has products with a scale per 32 values: Blackwell, CDNA 4."""
        return self.architecture == "CDNA 4" if self.amd else self.capability >= (10, 0)

    @property
    def flash_attention_2(self) -> bool:
        """Whether the flash-attn package, version 2, runs on it."""
        return self.architecture in ("CDNA 2", "CDNA 3", "CDNA 4") if self.amd else self.capability >= AMPERE


_ARCHITECTURES = {
    (3, 7): "Kepler", (5, 2): "Maxwell", (6, 0): "Pascal", (6, 1): "Pascal", (7, 0): "Volta", (7, 5): "Turing",
    (8, 0): "Ampere", (8, 6): "Ampere", (8, 9): "Ada", (9, 0): "Hopper", (10, 0): "Blackwell", (10, 3): "Blackwell",
    (12, 0): "Blackwell",
}  # fmt: skip
_NVIDIA: dict[str, tuple[tuple[int, int], *tuple[float, ...]]] = {
    # data center
    "K80": ((3, 7), 11.2), "M40": ((5, 2), 11.2, 22.5), "M60": ((5, 2), 7.6),
    "P4": ((6, 1), 7.4), "P40": ((6, 1), 22.5), "P100": ((6, 0), 12, 16), "V100": ((7, 0), 16, 32), "T4": ((7, 5), 15),
    "A2": ((8, 6), 15), "A10": ((8, 6), 22.5), "A10G": ((8, 6), 22.5), "A16": ((8, 6), 15), "A30": ((8, 0), 24),
    "A40": ((8, 6), 45), "A100": ((8, 0), 40, 80), "A800": ((8, 0), 40, 80),
    "L4": ((8, 9), 22.5), "L20": ((8, 9), 45), "L40": ((8, 9), 45), "L40S": ((8, 9), 45),
    "H20": ((9, 0), 95.6, 140), "H100": ((9, 0), 79.6), "H800": ((9, 0), 79.6), "H100 NVL": ((9, 0), 93.6),
    "H200": ((9, 0), 140.4), "GH200": ((9, 0), 95.6, 140), "B200": ((10, 0), 179), "GB200": ((10, 0), 185),
    "B300": ((10, 3), 268),
    # workstations
    "Quadro RTX 5000": ((7, 5), 16), "Quadro RTX 6000": ((7, 5), 24), "Quadro RTX 8000": ((7, 5), 48),
    "RTX A2000": ((8, 6), 6, 12), "RTX A4000": ((8, 6), 16), "RTX A4500": ((8, 6), 20), "RTX A5000": ((8, 6), 24),
    "RTX A6000": ((8, 6), 48), "RTX 4000 Ada": ((8, 9), 20), "RTX 5000 Ada": ((8, 9), 32),
    "RTX 6000 Ada": ((8, 9), 48), "RTX PRO 6000": ((12, 0), 95.6),
    "TITAN X": ((6, 1), 12), "TITAN Xp": ((6, 1), 12), "TITAN V": ((7, 0), 12), "TITAN RTX": ((7, 5), 24),
    # desktops
    "GTX 1060": ((6, 1), 3, 6), "GTX 1070": ((6, 1), 8), "GTX 1080": ((6, 1), 8), "GTX 1080 Ti": ((6, 1), 11),
    "GTX 1650": ((7, 5), 4), "GTX 1660": ((7, 5), 6), "GTX 1660 Ti": ((7, 5), 6), "GTX 1660 Super": ((7, 5), 6),
    "RTX 2060": ((7, 5), 6, 12), "RTX 2070": ((7, 5), 8), "RTX 2080": ((7, 5), 8), "RTX 2080 Ti": ((7, 5), 11),
    "RTX 2070 Super": ((7, 5), 8), "RTX 2080 Super": ((7, 5), 8),
    "RTX 3050": ((8, 6), 6, 8), "RTX 3060": ((8, 6), 8, 12), "RTX 3060 Ti": ((8, 6), 8), "RTX 3070": ((8, 6), 8),
    "RTX 3070 Ti": ((8, 6), 8), "RTX 3080": ((8, 6), 10, 12), "RTX 3080 Ti": ((8, 6), 12), "RTX 3090": ((8, 6), 24),
    "RTX 3090 Ti": ((8, 6), 24),
    "RTX 4060": ((8, 9), 8), "RTX 4060 Ti": ((8, 9), 8, 16), "RTX 4070": ((8, 9), 12), "RTX 4070 Ti": ((8, 9), 12),
    "RTX 4070 Super": ((8, 9), 12), "RTX 4070 Ti Super": ((8, 9), 16), "RTX 4080": ((8, 9), 16),
    "RTX 4080 Super": ((8, 9), 16), "RTX 4090": ((8, 9), 24), "RTX 4090 D": ((8, 9), 24),
    "RTX 5060": ((12, 0), 8), "RTX 5060 Ti": ((12, 0), 8, 16), "RTX 5070": ((12, 0), 12), "RTX 5070 Ti": ((12, 0), 16),
    "RTX 5080": ((12, 0), 16), "RTX 5090": ((12, 0), 32),
}  # fmt: skip
_AMD: dict[str, tuple[str, float]] = {
    "MI100": ("CDNA", 32), "MI210": ("CDNA 2", 64), "MI250": ("CDNA 2", 64), "MI250X": ("CDNA 2", 64),
    "MI300A": ("CDNA 3", 128), "MI300X": ("CDNA 3", 192), "MI325X": ("CDNA 3", 256), "MI350X": ("CDNA 4", 288),
    "MI355X": ("CDNA 4", 288),
}  # fmt: skip
"""Each half of an MI250 or MI250X is a device."""


def _nvidia(name: str, capability: tuple[int, int], *sizes: float) -> Card:
    several = sizes if len(sizes) > 1 else ()
    architecture = _ARCHITECTURES[capability]
    return Card(name=name, architecture=architecture, capability=capability, memory_gib=sizes[0], sizes=several)


def _amd(name: str, architecture: str, size: float) -> Card:
    return Card(name=name, architecture=architecture, capability=(0, 0), memory_gib=size, amd=True)


NO_CARD = Card(name="none", architecture="CPU", capability=(0, 0), memory_gib=0.0)
"""The CPU."""
_NO_CARD = frozenset({"none", "cpu", "no"})

CARDS: tuple[Card, ...] = (
    *(_nvidia(name, *row) for name, row in _NVIDIA.items()),
    *(_amd(name, *row) for name, row in _AMD.items()),
)

_SIZE = lazy_regex(r"(?<![a-z0-9])(\d{1,3})\s*gi?b?\b", re.IGNORECASE)
_FILLING = lazy_regex(
    r"^\s*\d+ ?x(?= ?[a-z\d])|\b(?:x ?\d+|nvidia|amd|ati|tesla|geforce|instinct|radeon|graphics|gpu|accelerator|"
    r"sxm\d?|pcie|hbm\d\w?|oam|ms|dgx|hgx|laptop|mobile|max-?q|generation|corporation|tensor core|"
    r"series|server edition|workstation edition|blackwell|hopper|ampere|dgxs|fhhl)\b",
    re.IGNORECASE,
)


def card_named(text: str) -> Card | None:
    """The GPU of this name in any spelling: `t4`, `NVIDIA A100-SXM4-80GB`, `rtx 3090`, `A10G`, `MI300X`."""
    words = text.replace("_", " ").replace("-", " ")
    size = _SIZE.search(words)
    bare = _key(_FILLING.sub(" ", _SIZE.sub(" ", words)))
    card = _by_key().get(bare)
    if card is None or size is None or not card.sizes:
        return card
    # Sold as 80 GB, reported as 79.6 GiB: take the nearest size.
    nearest = min(card.sizes, key=lambda each: abs(each - float(size.group(1))))
    return replace(card, memory_gib=nearest)


def card_asked_for(text: str) -> Card:
    """The GPU of this name; `none` for no GPU. Raises UsageError with similar names otherwise."""
    if _key(text) in _NO_CARD:
        return NO_CARD
    card = card_named(text)
    if card is not None:
        return card
    names = {_key(each.name): each.name for each in CARDS}
    close = [names[key] for key in difflib.get_close_matches(_key(text), names, n=3, cutoff=0.5)]
    usual = "T4, V100, A10G, A100, A100-80GB, L4, L40S, H100, H200, B200, RTX 3090, RTX 4090, MI300X"
    raise UsageError(
        f"unknown GPU {text!r}", fix=f"did you mean {' or '.join(close)}?" if close else f"known GPUs include {usual}"
    )


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _by_key() -> dict[str, Card]:
    """Every spelling: with and without the series name, if the number alone is unique."""
    keys = {_key(card.name): card for card in CARDS}
    for card in CARDS:
        series, _, number = card.name.partition(" ")
        if series in ("RTX", "GTX") and number[0].isdigit() and "Ada" not in number:
            keys.setdefault(_key(number), card)
        if series == "RTX" and number.startswith(("A", "PRO")):
            keys.setdefault(_key(number), card)
        if series == "Quadro":
            keys.setdefault(_key(number), card)
    keys["rtx6000"] = keys["quadrortx6000"]
    return keys
