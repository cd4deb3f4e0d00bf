"""How the installed transformers computes T5's attention, from its files, without an import.

T5 adds a learned bias to its scores. Older releases have only eager attention. The first with
scaled_dot_product_attention pass the bias as a permuted view, which fast kernels refuse. Later ones make it contiguous,
and the efficient kernel accepts it.
"""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from stayfinite.inspection.memory.plan import BiasKernel


class Installed(NamedTuple):
    """The version, and the kernel for T5's attention."""

    version: str
    """Empty if it is not installed."""
    bias_kernel: BiasKernel


def installed_transformers() -> Installed:
    """Inspect the installed transformers; if there is none, assume the middle variant."""
    try:
        spec = find_spec("transformers")
        version = metadata.version("transformers")
    except (ImportError, ValueError):
        return Installed("", "math")
    if spec is None or spec.origin is None:
        return Installed("", "math")
    return Installed(version, bias_kernel_in(Path(spec.origin).parent))


def bias_kernel_in(package: Path) -> BiasKernel:
    """The kernel for attention with a bias in this transformers package."""
    try:
        model = (package / "models" / "t5" / "modeling_t5.py").read_text(encoding="utf-8")
        bridge = (package / "integrations" / "sdpa_attention.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "math"
    if "_supports_sdpa = True" not in model:
        return "eager"
    return "efficient" if "position_bias_mask.contiguous()" in bridge else "math"
