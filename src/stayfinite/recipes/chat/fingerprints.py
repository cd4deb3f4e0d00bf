"""Which base is this? A short name for its weights, the same however they are stored."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

SAMPLED = 256
"""Numbers that are looked at in each tensor."""


def fingerprint(model: Any) -> str:
    """Twelve characters that another base does not have.

    Made from the shape of the model and from samples of its embedding and its norms: those stay as they are when the
    matrices are stored in 8 or 4 bits, and differ between two trainings of one architecture.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = inner.config
    digest = hashlib.blake2b(digest_size=6)
    shape = [getattr(config, name, None) for name in ("model_type", "vocab_size", "hidden_size", "num_hidden_layers")]
    digest.update(repr(shape).encode())
    vectors = [tensor for name, tensor in inner.named_parameters() if tensor.ndim == 1 and "lora_" not in name]
    for tensor in (inner.get_input_embeddings().weight, *vectors):
        digest.update(_sample(tensor))
    return digest.hexdigest()


def _sample(tensor: Tensor) -> bytes:
    flat = tensor.detach().flatten()
    places = torch.linspace(0, len(flat) - 1, min(SAMPLED, len(flat)), dtype=torch.float64).long()
    # To bf16: a base that is loaded in half precision for use is still the same.
    return flat[places.to(flat.device)].to("cpu", torch.bfloat16).view(torch.int16).numpy().tobytes()
