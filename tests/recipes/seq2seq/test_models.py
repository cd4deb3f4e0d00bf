"""Models of the recipes: faster kernels, the same function."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.mt5.configuration_mt5 import MT5Config
from transformers.models.mt5.modeling_mt5 import MT5ForConditionalGeneration

from stayfinite.recipes.seq2seq.models import with_fused_norms

SHAPE: dict[str, Any] = {
    "vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0, "dropout_rate": 0.0,
}  # fmt: skip
IDS = torch.arange(2, 50).view(3, 16)


def t5(**changed: Any) -> Any:
    torch.manual_seed(0)
    kind: Any = T5Config  # its annotations omit common config arguments
    return T5ForConditionalGeneration(kind(**SHAPE | changed))


def mt5() -> Any:
    torch.manual_seed(0)
    kind: Any = MT5Config
    return MT5ForConditionalGeneration(kind(**SHAPE))


def learned(model: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    loss = model(input_ids=IDS, labels=IDS).loss
    return loss, list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("build", [t5, mt5])
@pytest.mark.parametrize(("precision", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_fused_norms_leave_loss_and_gradients_as_they_were(build: Any, precision: torch.dtype, error: float) -> None:
    model = build().to(precision)
    plain_loss, plain = learned(copy.deepcopy(model))
    fused_loss, fused = learned(with_fused_norms(model))
    assert fused_loss.item() == pytest.approx(plain_loss.item(), rel=error)
    apart = torch.cat([(one - other).flatten().float() for one, other in zip(fused, plain, strict=True)])
    assert apart.norm() <= error * torch.cat([one.flatten().float() for one in plain]).norm()


def test_norms_whose_weights_alone_are_in_half_precision_compute_as_before() -> None:
    norms = [next(each for each in t5().modules() if type(each).__name__ == "T5LayerNorm").half() for _ in range(2)]
    states = torch.randn(2, 3, 32)
    torch.testing.assert_close(with_fused_norms(norms[0])(states), norms[1](states), rtol=0, atol=0)


def test_a_copy_with_fused_norms_computes_with_its_own_weights() -> None:
    model = with_fused_norms(t5())
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for norm in (module for module in copied.modules() if type(module).__name__ == "T5LayerNorm"):
            norm.weight.zero_()
    assert not copied(input_ids=IDS, labels=IDS).logits.any()
    assert model(input_ids=IDS, labels=IDS).logits.any()


def test_the_gelu_in_one_kernel_is_that_of_t5() -> None:
    pieces, one = t5(feed_forward_proj="gated-gelu"), t5(feed_forward_proj="gated-gelu_pytorch_tanh")
    torch.testing.assert_close(learned(one)[0], learned(pieces)[0])
