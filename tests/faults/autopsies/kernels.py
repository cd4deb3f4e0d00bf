"""Kernels and devices that are wrong though the formula is right."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.library import Library
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from faults.autopsies.models import Regressor, bert, llama, squared_error, words
from faults.autopsies.record import Step, a_step, fault

WRONG_KERNEL = ("sdpa-kernel-bug",)


@contextmanager
def a_wrong_flash_kernel() -> Iterator[None]:
    """Attention on the CPU goes through a flash kernel that spoils its last value; the math kernel is as it was."""
    library = Library("aten", "IMPL", "CPU")

    def flash(query: Tensor, key: Tensor, value: Tensor, *_: Any, **options: Any) -> tuple[Tensor, Tensor]:
        causal, mask = bool(_[1:] and _[1]) or bool(options.get("is_causal")), options.get("attn_mask")
        with sdpa_kernel(SDPBackend.MATH):
            out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        out = out.clone()
        out[..., -1, -1] = math.nan
        return out, torch.zeros(query.shape[:-1])

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is overridden
            library.impl("_scaled_dot_product_flash_attention_for_cpu", flash)
        yield
    finally:
        library._destroy()


@fault(cause=WRONG_KERNEL, operator="aten._scaled_dot_product_flash_attention_for_cpu", module="1",
       fixed_by="math_attention")  # fmt: skip
def flash_attention_that_is_wrong() -> Step:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)  # planted here

    model = nn.Sequential(nn.Embedding(40, 16), Attention(), nn.Linear(16, 40))

    def forward(batch: Tensor) -> Tensor:
        with a_wrong_flash_kernel():
            logits = model(batch)
        return F.cross_entropy(logits.flatten(0, 1), batch.flatten())

    return a_step(model, forward, words(4))


@fault(cause=WRONG_KERNEL, operator="aten._scaled_dot_product_flash_attention_for_cpu",
       module="model.layers.0.self_attn", fixed_by="math_attention")  # fmt: skip
def llama_on_flash_attention_that_is_wrong() -> Step:
    model = llama(attn_implementation="sdpa")

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with a_wrong_flash_kernel():
            return model(**batch).loss

    ids = words(4)
    return a_step(model, forward, {"input_ids": ids, "labels": ids})


@fault(cause="hardware", materials={"trigger": "loss-not-finite"}, fix=False)
def bit_that_flipped_once() -> Step:
    model = Regressor()
    return a_step(model, squared_error(model), {"x": torch.randn(6, 5), "y": torch.randn(6)})


@fault(cause="hardware", materials={"trigger": "loss-not-finite"}, fix=False)
def device_that_fails_now_and_then() -> Step:
    model = Regressor()
    calls = iter([True, *[False] * 10_000])

    def forward(batch: dict[str, Tensor]) -> Tensor:
        features = model.body(batch["x"])
        if next(calls):
            features = features.index_fill(1, torch.tensor([3]), math.nan)
        return F.mse_loss(model.head(features).squeeze(-1), batch["y"])

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6)})


@fault(cause="hardware", materials={"trigger": "loss-not-finite"}, fix=False)
def device_that_fails_every_other_time() -> Step:
    model = Regressor()
    calls = itertools.cycle([False, True])

    def forward(batch: dict[str, Tensor]) -> Tensor:
        loss = F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])
        return loss * math.nan if next(calls) else loss

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6)})


@fault(cause=WRONG_KERNEL, operator="aten.mul", module="1", fixed_by="math_attention")
def fused_attention_that_is_wrong_while_it_is_enabled() -> Step:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out * math.nan if torch.backends.cuda.flash_sdp_enabled() else out

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x)[:, None].chunk(3, -1)
            return attention(q, k, v).squeeze(1)

    model = nn.Sequential(nn.Embedding(40, 8), Attention(), nn.Linear(8, 40))

    def forward(batch: Tensor) -> Tensor:
        return F.cross_entropy(model(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())

    return a_step(model, forward, words(4))


@fault(cause=WRONG_KERNEL, operator="aten.index_fill", module="bert.encoder.layer.0.attention.self")
def attention_of_bert_that_is_right_in_eager_only() -> Step:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = bert(attn_implementation="sdpa")
    right = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def wrong(*args: Any, **kwargs: Any) -> Any:
        out, weights = right(*args, **kwargs)
        return out.index_fill(-1, torch.tensor([3]), math.nan), weights  # planted here

    def forward(batch: dict[str, Tensor]) -> Tensor:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = wrong
        try:
            return model(**batch).loss
        finally:
            ALL_ATTENTION_FUNCTIONS["sdpa"] = right

    batch = {"input_ids": words(), "labels": torch.tensor([0, 1, 0, 1, 1, 0])}
    return a_step(model, forward, batch)


@fault(cause="hardware", fix=False)
def fault_that_happens_once_without_any_word_about_it() -> Step:
    model = Regressor()
    calls = iter([True, *[False] * 10_000])

    def forward(batch: dict[str, Tensor]) -> Tensor:
        loss = F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])
        return loss / 0.0 if next(calls) else loss

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6)})
