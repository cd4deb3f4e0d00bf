"""What recipes ask of any model: to be evaluated, and to be loaded in fewer bits."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from stayfinite.errors import MissingExtra


@contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """In evaluation mode within, in the mode from before afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def quantized(bits: str, what_for: str, kept: Sequence[str] = ()) -> Any:
    """The configuration with which transformers loads a model in `8bit` or `4bit`.

    Arguments:
        what_for: needs it, in words.
        kept: modules that are not quantized, as patterns.

    Raises:
        MissingExtra: bitsandbytes is not installed.
    """
    with MissingExtra.unless("bitsandbytes", extra="quant", what_for=what_for):
        import bitsandbytes  # noqa: F401
    from transformers import BitsAndBytesConfig

    kind: Any = BitsAndBytesConfig
    options: dict[str, Any] = {"llm_int8_skip_modules": list(kept)} if kept else {}
    if bits == "8bit":
        return kind(load_in_8bit=True, **options)
    computing = torch.bfloat16 if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else torch.float32
    return kind(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=computing,
        **options,
    )  # fmt: skip


def keep_trainable(model: nn.Module) -> None:
    """Keep 4-bit layers out of bitsandbytes' packed format for CPUs with bf16 instructions.

    It packs a layer at its first evaluation. No gradient passes through a packed layer afterwards, and one whose rows
    are no whole blocks of 64 weights fails.
    """
    layers: list[Any] = list(model.modules())
    for layer in layers:
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
