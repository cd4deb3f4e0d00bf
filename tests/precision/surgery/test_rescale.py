"""Rescaling: the same function, within fp16's range, and trainable there; healthy models are left alone."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import oversized_models as planted
from stayfinite.errors import UsageError
from stayfinite.precision.surgery import matching_groups, rescale
from stayfinite.precision.surgery.files import train_a_little

pytest.importorskip("transformers")

KINDS = ["t5 gated", "t5 relu", "mt5", "byt5", "llama", "qwen3", "gemma", "gemma3", "bart"]
QUICK = [
    pytest.param(kind, fault, marks=[] if (kind, fault) in chosen else pytest.mark.slow)
    for chosen in [{("t5 relu", "hidden"), ("llama", "branch")}]
    for kind in KINDS
    for fault in ("branch", "hidden")
]
"""One of each fault; the rest is slow."""


@pytest.mark.parametrize(
    "kind", ["t5 gated", "gemma3", "pegasus", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS)]
)
def test_a_healthy_model_is_left_alone_bit_by_bit(kind):
    model = planted.build(kind)
    before = copy.deepcopy(model.state_dict())
    result = rescale(model, planted.batches(model))
    assert result.verdict == "nothing to do"
    assert not result.changes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("kind", "fault"), QUICK)
def test_activations_at_five_times_the_range_fit_after_it_and_the_function_is_the_same(kind, fault):
    model = planted.plant(planted.build(kind), fault)
    result = rescale(model, planted.batches(model))
    assert result.verdict == "rescaled"
    assert result.largest_before >= 5 * 65503
    assert result.largest_after <= 0.25 * 65504
    assert result.overflows_before
    assert not result.overflows_after
    assert result.logits_difference < 2e-5
    assert result.loss_difference < 2e-5


@pytest.mark.parametrize(
    ("kind", "fault"), [("t5 gated", "branch"), pytest.param("gemma", "branch", marks=pytest.mark.slow)]
)
def test_after_it_fp16_trains_as_fp32_does_and_before_it_does_not(kind, fault):
    model = planted.plant(planted.build(kind), fault)
    given = planted.batches(model)
    fp32 = _trained(model, given, "fp32", {}, steps=4)
    before = _trained(model, given, "fp16", {}, steps=4)
    result = rescale(model, given)
    after = _trained(model, given, "fp16", result.parameters, steps=4)
    assert before.overflows == 4
    assert before.last_loss is None
    assert after.overflows == 0
    assert fp32.last_loss < fp32.first_loss
    assert after.last_loss == pytest.approx(fp32.last_loss, rel=0.02)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "fault"),
    [("t5 gated", "hidden"), ("gemma", "branch"), ("t5 relu", "branch")],
)
def test_three_hundred_steps_in_fp16_end_where_fp32_does(kind, fault):
    model = planted.plant(planted.build(kind), fault)
    given = planted.batches(model, count=8)
    fp32 = _trained(model, given, "fp32", {}, steps=300)
    result = rescale(model, given)
    # The surgery itself changes no bit of a training: its factors are powers of two. Gemma's norms store their weight
    # less 1, which rounds.
    again = _trained(model, given, "fp32", result.parameters, steps=300).last_loss
    assert again == (pytest.approx(fp32.last_loss, rel=1e-3) if kind == "gemma" else fp32.last_loss)
    after = _trained(model, given, "fp16", result.parameters, steps=300)
    assert after.overflows == 0
    # Of about 6 at the start. In fp32, from weights 2**-11 apart, the T5 with ReLU ends between 0.19 and 0.22.
    assert after.last_loss == pytest.approx(fp32.last_loss, rel=0.05, abs=0.1)


def test_matching_groups_train_the_rescaled_network_as_the_original_in_fp32():
    model = planted.plant(planted.build("t5 gated"), "branch")
    original, given = copy.deepcopy(model), planted.batches(model)
    result = rescale(model, given)
    losses = []
    for network, groups in (
        (original, matching_groups(original, {}, lr=3e-3, weight_decay=0.1)),
        (model, matching_groups(model, result, lr=3e-3, weight_decay=0.1)),
        (model, [{"params": list(model.parameters())}]),
    ):
        network, taken = copy.deepcopy(network).eval(), []
        again = {id(old): new for old, new in zip((*original.parameters(),), (*network.parameters(),), strict=True)}
        again |= {id(old): new for old, new in zip((*model.parameters(),), (*network.parameters(),), strict=True)}
        groups = [group | {"params": [again[id(p)] for p in group["params"]]} for group in groups]
        optimizer = torch.optim.AdamW(groups, lr=3e-3, weight_decay=0.1)
        for step in range(6):
            loss = network(**given[step % 2]).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            taken.append(float(loss.detach()))
        losses.append(taken)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] != pytest.approx(losses[0], rel=1e-2)


def test_a_fixed_epsilon_that_changes_the_function_is_refused_and_the_model_put_back():
    model = planted.plant(planted.build("pegasus"), "branch")
    before = copy.deepcopy(model.state_dict())
    result = rescale(model, planted.batches(model), tolerance=1e-5)
    assert result.verdict == "blocked"
    assert "epsilon" in result.refused
    assert any(name.endswith("fc2") for name in result.keep_in_fp32)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_relu_feed_forward_of_pegasus_needs_no_epsilon():
    model = planted.plant(planted.build("pegasus"), "hidden")
    result = rescale(model, planted.batches(model))
    assert result.verdict == "rescaled"
    assert result.logits_difference < 2e-5


@pytest.mark.parametrize(
    ("kind", "layer", "module", "why"),
    [
        ("t5 gated", "encoder.block.0.layer.1.DenseReluDense.wi_0", "wi_0", "gate"),
        ("llama", "lm_head", "lm_head", "logits"),
    ],
)
def test_what_has_no_freedom_is_named_with_its_reason_and_kept_in_fp32(kind, layer, module, why):
    model = planted.build(kind)
    with torch.no_grad():
        model.get_submodule(layer).weight.mul_(1e5)
    result = rescale(model, planted.batches(model))
    assert result.verdict in ("blocked", "partly")
    found = next(each for each in result.obstacles if each.module.endswith(module))
    assert why in found.why
    assert layer in result.keep_in_fp32


def test_attention_scores_beyond_the_range_are_blamed_on_the_softmax():
    model = planted.build("t5 relu")
    model.set_attn_implementation("eager")
    attention = model.encoder.block[0].layer[0].SelfAttention
    with torch.no_grad():
        attention.q.weight.mul_(1000.0)
        attention.k.weight.mul_(1000.0)
    result = rescale(model, planted.batches(model))
    assert any("softmax" in each.why for each in result.obstacles)


def test_an_unknown_architecture_gets_the_modules_to_keep_in_fp32():
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=planted.VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=32)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.h[1].mlp.c_proj.weight.mul_(1e8)
    result = rescale(model, planted.batches(model))
    assert result.verdict == "blocked"
    assert "transformer.h.1.mlp.c_proj" in result.keep_in_fp32


def test_weights_that_are_not_finite_are_no_matter_of_scale():
    model = planted.build("t5 relu")
    with torch.no_grad():
        model.shared.weight[7:60].fill_(math.nan)
    with pytest.raises(UsageError, match="NaN or inf in fp32 too"):
        rescale(model, planted.batches(model))


def _trained(model, given, precision, exponents, *, steps):
    return train_a_little(model, given, steps=steps, precision=precision, exponents=exponents, network="", lr=3e-3)
