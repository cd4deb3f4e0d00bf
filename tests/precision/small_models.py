"""Small models: one that every format holds, and the same with one thing planted that some do not."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, WORDS = 32, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.gate = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.branch_scale = 1.0

    def forward(self, x):  # [B, T, D]
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        y = self.norm2(x)
        return x + self.branch_scale * self.down(F.gelu(self.up(y)) * self.gate(y))


class Small(nn.Module):
    def __init__(self, blocks=2, *, checkpointed=False):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.checkpointed = checkpointed

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


def healthy(seed=0, **kwargs):
    torch.manual_seed(seed)
    return Small(**kwargs)


def training(model, lr=1e-3):
    """Model, optimizer, batch, forward."""
    ids = torch.randint(0, WORDS, (4, 17), generator=torch.Generator().manual_seed(1))
    ids[0, 3] = 7
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def forward(batch):
        return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    return model, optimizer, ids, forward


@torch.no_grad()
def huge_feed_forward(model):
    """The product of gate and up leaves fp16's range, and what comes out of it is back within it."""
    block = model.blocks[1]
    block.up.weight.mul_(2e3)
    block.gate.weight.mul_(2e3)
    block.down.weight.mul_(1e-7)


@torch.no_grad()
def outlier_channel(model):
    """One channel of a layer's input is the same large number in every row; the others are small beside it."""
    block = model.blocks[1]
    block.norm2.weight.mul_(0.03)
    block.norm2.bias[3] = 2e4
    for layer in (block.up, block.gate):
        layer.weight.mul_(30)
        layer.weight[:, 3] = 5e-6


@torch.no_grad()
def outlier_token(model):
    """One word is so much larger than the others that it alone sets the scale of a tensor; no norm is in between."""
    model.blocks[1].norm2 = nn.Identity()
    model.embed.weight[7] *= 2e4


def tiny_gradients(model):
    """A branch that counts for so little that no loss scale holds its gradients beside the others."""
    model.blocks[0].branch_scale = 1e-14


@torch.no_grad()
def wide_head(model):
    """All logits share a large part; what tells words apart is small beside it."""
    model.norm.bias[0] = 1e3
    model.head.weight[:, 0] = 2.0
