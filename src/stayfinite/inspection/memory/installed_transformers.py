"""How the transformers that is installed here computes T5's attention. Its files are read; it is not imported.

T5 adds a learned bias to its scores. Older releases know the written-out attention alone. The first that call
scaled_dot_product_attention hand it the bias as a permuted view, which its fast kernels refuse. Later ones make the
bias contiguous, and the efficient kernel takes it.
"""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from stayfinite.inspection.memory.plan import BiasKernel


class Installed(NamedTuple):
    """What is known of it."""

    version: str
    """Empty where there is none."""
    bias_kernel: BiasKernel


def installed_transformers() -> Installed:
    """Look at the files of the installed transformers; without one, take the way that lies between the others."""
    try:
        spec = find_spec("transformers")
        version = metadata.version("transformers")
    except (ImportError, ValueError):
        return Installed("", "math")
    if spec is None or spec.origin is None:
        return Installed("", "math")
    return Installed(version, bias_kernel_in(Path(spec.origin).parent))


def bias_kernel_in(package: Path) -> BiasKernel:
    """How attention with a bias is computed by the transformers in this directory."""
    try:
        model = (package / "models" / "t5" / "modeling_t5.py").read_text(encoding="utf-8")
        bridge = (package / "integrations" / "sdpa_attention.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "math"
    if "_supports_sdpa = True" not in model:
        return "eager"
    return "efficient" if "position_bias_mask.contiguous()" in bridge else "math"
