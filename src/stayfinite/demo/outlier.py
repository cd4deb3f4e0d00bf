"""One outlier neuron, as in models pre-trained in bf16.

T5 checkpoints are pre-trained in bf16, which reaches 3e38. Their feed-forward layers have a few neurons that respond to
a few tokens with enormous values; the product of `wo` then exceeds 65,504, the largest fp16 number, and fine-tuning in
fp16 gives inf, then NaN. A randomly initialized model has no such neuron and grows none in seconds, so the demo plants
one in the last encoder block and ties it to one byte. Only weights are planted. They are ordinary fp32 numbers, and
fp32 and bf16 train with them undisturbed; the overflow comes from fp16 arithmetic alone.
"""

import torch

from stayfinite.demo.alphabet import MARKS
from stayfinite.demo.model import FeedForward, TinyT5

FEATURE = 0
"""Embedding dimension that marks the chosen byte."""
RESTING, RAISED = -4.0, 20.0
"""Its value for other bytes and for the chosen one: ReLU keeps the neuron silent at rest, with room for drift."""
GAIN = 200.0
"""How strongly the neuron reads that dimension, and how strongly it writes."""


@torch.no_grad()
def plant_outlier(model: TinyT5, character: str) -> None:
    """Make one feed-forward neuron of the last encoder block respond enormously to the last byte of `character`."""
    embedding = model.shared.weight
    embedding[:, FEATURE] = RESTING
    embedding[MARKS + character.encode()[-1], FEATURE] = RAISED
    feed_forward = model.encoder.block[-1].get_submodule("ff")
    assert isinstance(feed_forward, FeedForward)
    feed_forward.wi.weight[0] = 0.0
    feed_forward.wi.weight[0, FEATURE] = GAIN
    feed_forward.wo.weight[:, 0] = 0.0
    feed_forward.wo.weight[FEATURE, 0] = GAIN
