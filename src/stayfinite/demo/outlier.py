"""One outlier neuron, as pre-training in bf16 leaves it.

T5 checkpoints are pre-trained in bf16, which reaches 3e38. Their feed-forward layers hold a few neurons that answer
to a few tokens with values that no other neuron comes near; the product of `wo` then exceeds 65,504, the largest fp16
number, and fine-tuning in fp16 meets inf, then NaN. A model that starts from random numbers has no such neuron and
seconds of training grow none, so the demo plants one by hand, in the last encoder block, and ties it to one byte.
That is all that is planted: weights. They are ordinary fp32 numbers, fp32 and bf16 train with them undisturbed, and
whether a product overflows is decided by fp16 arithmetic alone.
"""

import torch

from stayfinite.demo.alphabet import MARKS
from stayfinite.demo.model import FeedForward, TinyT5

FEATURE = 0
"""The embedding dimension that tells the chosen byte from all others."""
RESTING, RAISED = -4.0, 20.0
"""Its value for every other byte and for the chosen one: ReLU keeps the neuron silent at rest, with room for drift."""
GAIN = 200.0
"""How strongly the neuron reads that dimension, and how strongly it writes."""


@torch.no_grad()
def plant_outlier(model: TinyT5, character: str) -> None:
    """Make one feed-forward neuron of the last encoder block answer to the last byte of `character`, enormously."""
    embedding = model.shared.weight
    embedding[:, FEATURE] = RESTING
    embedding[MARKS + character.encode()[-1], FEATURE] = RAISED
    feed_forward = model.encoder.block[-1].get_submodule("ff")
    assert isinstance(feed_forward, FeedForward)
    feed_forward.wi.weight[0] = 0.0
    feed_forward.wi.weight[0, FEATURE] = GAIN
    feed_forward.wo.weight[:, 0] = 0.0
    feed_forward.wo.weight[FEATURE, 0] = GAIN
