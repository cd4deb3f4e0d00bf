"""What is seen of one forward pass is true, and nothing of the pass is changed by looking."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from quick_ones import quick_ones
from stayfinite.core.early_signs import ACTIVATION, ATTENTION, ROUTER
from stayfinite.measure.forward_look import ForwardLook


def look(model: nn.Module, *args: Any, **kwargs: Any) -> tuple[dict[tuple[str, str], float], list[Tensor], Any]:
    """What is seen, the gradients, and the output."""
    torch.manual_seed(5)
    looking = ForwardLook(model)
    out = model(*args, **kwargs)
    out = out.logits if hasattr(out, "logits") else out
    out.float().square().mean().backward()
    keys, values = looking.finish()
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return dict(zip(keys, [] if values is None else values.tolist(), strict=True)), grads, out


def same_without_looking(model: nn.Module, grads: list[Tensor], out: Tensor, *args: Any, **kwargs: Any) -> bool:
    torch.manual_seed(5)
    plain = model(*args, **kwargs)
    plain = plain.logits if hasattr(plain, "logits") else plain
    plain.float().square().mean().backward()
    now = [p.grad for p in model.parameters() if p.grad is not None]
    return torch.equal(plain, out) and all(torch.equal(a, b) for a, b in zip(now, grads, strict=True))


class WrittenOut(nn.Module):
    """An attention layer, by hand or by torch's own kernel."""

    def __init__(self, kernel: bool) -> None:
        super().__init__()
        self.qkv, self.kernel = nn.Linear(8, 24), kernel

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        if self.kernel:
            return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(4), -1)
        return (weights @ v).transpose(1, 2).flatten(2)


class CausalAttention(WrittenOut):
    pass


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("recompute", [None, True, False])
def test_the_largest_attention_logit_is_the_one_that_the_softmax_was_given(kernel, recompute):
    torch.manual_seed(0)
    attention = CausalAttention(kernel)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x) if recompute is None else checkpoint(self.attention, x, use_reentrant=recompute)

    x = torch.randn(3, 5, 8, requires_grad=True)
    model = Net()
    seen, grads, out = look(model, x)
    q, k, _ = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in attention.qkv(x).chunk(3, -1))
    assert seen[ATTENTION, "attention"] == pytest.approx((q @ k.transpose(-1, -2)).max().item() / 2, rel=1e-5)
    assert same_without_looking(model, grads, out, x)


def models() -> dict[str, Any]:
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, MixtralConfig, MixtralForCausalLM

    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return {
        "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)),
        "eager": lambda: GPT2LMHeadModel(
            GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, attn_implementation="eager")
        ),
        "mixtral": lambda: MixtralForCausalLM(
            MixtralConfig(vocab_size=64, num_key_value_heads=2, num_local_experts=4, **small)
        ),
        "bert": lambda: nn.Sequential(Last(BertModel(BertConfig(vocab_size=64, **small)))),
        "torch": lambda: nn.Sequential(
            nn.Embedding(64, 32),
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False
            ),
        ),
    }


class Last(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).last_hidden_state


@pytest.mark.parametrize("name", quick_ones(["gpt2", "eager", "mixtral", "bert", "torch"], "gpt2", "torch"))
def test_real_models_are_looked_into_and_compute_the_same_bits(name):
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = models()[name]().train()
    tokens = torch.randint(0, 64, (4, 12))
    seen, grads, out = look(model, tokens)
    assert same_without_looking(model, grads, out, tokens)
    kinds = [kind for kind, _ in seen]
    assert kinds.count(ATTENTION) == 2
    assert kinds.count(ACTIVATION) >= 1
    assert kinds.count(ROUTER) == (2 if name == "mixtral" else 0)


class Mixture(nn.Module):
    """Experts, and a router that prefers one of them by as much as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        return sum(weights[..., place : place + 1] * expert(x) for place, expert in enumerate(self.experts))


def test_the_share_of_the_busiest_expert_is_counted():
    torch.manual_seed(0)
    model, x = Mixture(), torch.randn(6, 5, 8)
    chosen = model.router(x).reshape(-1, 4).argmax(1)
    assert look(model, x)[0][ROUTER, "router"] == pytest.approx(float(chosen.bincount().max()) / 30)
    nn.init.constant_(model.router.bias, 0.0)
    with torch.no_grad():
        model.router.bias[2] = 100.0
    assert look(model, x)[0][ROUTER, "router"] == 1.0


def test_a_model_that_is_copied_or_saved_meanwhile_takes_no_hook_along():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    looking = ForwardLook(model)
    twin = copy.deepcopy(model)
    twin(torch.full((1, 4), 1e6))
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    torch.load(saved, weights_only=False)(torch.full((1, 4), 1e6))
    with torch.no_grad():
        model(torch.full((1, 4), 1e6))  # an evaluation
    model(torch.ones(1, 4))
    keys, values = looking.finish()
    assert keys == ((ACTIVATION, "0"), (ACTIVATION, "1"))
    assert values is not None
    assert float(values.max()) < 100
    assert not model[0]._forward_hooks


def test_an_error_in_the_forward_pass_leaves_nothing_behind():
    class BadAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("no")

    model = nn.Sequential(BadAttention())
    looking = ForwardLook(model)
    with pytest.raises(RuntimeError, match="no"):
        model(torch.ones(1))
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert looking.finish() == ((), None)
