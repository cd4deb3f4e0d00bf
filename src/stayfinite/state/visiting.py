"""Looking through a model with the weights of another state, which are taken out again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from stayfinite.state.parts import TrainingParts
from stayfinite.state.shards import local_part
from stayfinite.state.training import TrainingState


@contextmanager
def weights_of(parts: TrainingParts, state: TrainingState) -> Iterator[None]:
    """Within, parameters and buffers hold the values of a state; afterwards their own, to the last bit.

    Values are copied where the tensors are, so that compiled code and recorded graphs see them. It takes one more copy
    of the weights on their device.
    """
    state.wait()
    live = {
        f"model.{name}": local_part(tensor)
        for name, tensor in (parts.parameters() | parts.buffers()).items()
        if f"model.{name}" in state.tensors
    }
    with torch.no_grad():
        own = {name: tensor.detach().clone() for name, tensor in live.items()}
    try:
        with torch.no_grad():
            for name, tensor in live.items():
                tensor.copy_(state.tensors[name])
        yield
    finally:
        with torch.no_grad():
            for name, tensor in live.items():
                tensor.copy_(own[name])
