from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.compare import Compare
from stayfinite.recipes.images.batching import Batch, with_weight
from stayfinite.recipes.images.losses import Comparison, prompt_for
from stayfinite.recipes.images.models import (
    add_lora,
    choose_trained,
    is_size,
    load_model,
    load_processor,
    load_trained,
    rates_of,
    save_model,
    two_rates,
    write_base,
)
from stayfinite.recipes.images.pairs import LABELS

CPU = torch.device("cpu")
QUESTION = "Which one is larger?"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory: Path = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    write_base(directory, "tiny", question=QUESTION, answers=LABELS, image_size=16)
    return str(directory)


def _plain(base: str) -> Any:
    model = load_model(base, base="fp32", device=CPU)
    choose_trained(model, vision=True)
    return model


def _adapted(base: str, kept: Any = "fp32") -> Any:
    model = add_lora(load_model(base, base=kept, device=CPU), rank=4, alpha=8, dropout=0.0)
    choose_trained(model, vision=False)
    return model


def _with_vision(base: str) -> Any:
    model = add_lora(load_model(base, base="fp32", device=CPU), rank=4, alpha=8, dropout=0.0, vision=True)
    choose_trained(model, vision=True)
    return model


def _comparison(model: Any, base: str) -> Comparison:
    return Comparison(model, prompt_for(load_processor(base), QUESTION, LABELS), [1.0, 1.0, 1.0], CPU)


def _batch(pairs: int = 3) -> Batch:
    images = torch.randn(pairs, 2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    return with_weight({"images": images, "labels": torch.arange(pairs) % 3, "rows": torch.arange(pairs)}, 0.5)


def test_every_trained_parameter_gets_a_gradient_and_layers_that_nobody_reads_are_frozen(base: str) -> None:
    model = _plain(base)
    _comparison(model, base).loss(_batch()).backward()
    assert [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert all("post_layernorm" in name for name in frozen)
    assert frozen


def test_the_swapped_rows_are_the_answers_to_the_swapped_pairs(base: str) -> None:
    comparison, batch = _comparison(_plain(base).eval(), base), _batch()
    asked = comparison.logits(batch)
    swapped = comparison.logits(batch | {"images": batch["images"].flip(1)})
    assert torch.allclose(asked, torch.cat(swapped.chunk(2)[::-1]), atol=1e-5)
    assert comparison.labels(batch).tolist() == [0, 1, 2, 1, 0, 2]


def test_the_loss_depends_on_its_batch_alone_so_that_a_step_can_be_run_again(base: str) -> None:
    comparison = _comparison(_plain(base), base)
    light, heavy = (with_weight(_batch(), weight) for weight in (0.0, 2.0))
    first = comparison.loss(light)
    more = comparison.loss(heavy)
    assert comparison.loss(light) == first == comparison.parts["answer"]
    assert torch.allclose(more - first, 2 * comparison.parts["consistency"], atol=1e-6)


def test_under_lora_adapters_and_projector_are_trained_and_nothing_else(base: str) -> None:
    model = _adapted(base)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert all("lora_" in name or "multi_modal_projector" in name for name in trained)
    assert any("multi_modal_projector" in name for name in trained)
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in trained if "lora_" in name}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert not any("vision_tower" in name for name in trained)


def test_under_lora_a_vision_tower_that_is_trained_gets_gradients_wherever_it_is_read(base: str) -> None:
    model = _with_vision(base)
    _comparison(model, base).loss(_batch()).backward()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert any("vision_tower" in name for name in trained)
    assert [name for name, p in trained.items() if p.grad is None] == []


@pytest.mark.parametrize("make", [_plain, _adapted, _with_vision])
def test_what_was_saved_answers_alike_in_a_fresh_model(base: str, tmp_path: Path, make: Any) -> None:
    model = make(base)
    optimizer = two_rates(model, Compare(learning_rate=1e-2, projector_learning_rate=1e-2, weight_decay=0.0), CPU)
    comparison = _comparison(model, base)
    for _ in range(2):
        comparison.loss(_batch()).backward()
        optimizer.step()
    save_model(model, load_processor(base), tmp_path)
    fresh = make(base)
    before = _comparison(fresh, base).logits(_batch())
    load_trained(fresh, tmp_path)
    after = _comparison(fresh, base).logits(_batch())
    assert not torch.allclose(before, after, atol=1e-4)
    assert torch.equal(after, comparison.logits(_batch()))


def test_the_projector_has_a_rate_of_its_own_and_every_parameter_one_group(base: str) -> None:
    model = _adapted(base)
    optimizer = two_rates(model, Compare(learning_rate=1e-4, projector_learning_rate=2e-5, weight_decay=0.1), CPU)
    named = {id(p): name for name, p in model.named_parameters()}
    rates = {named[id(p)]: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert len(rates) == sum(len(group["params"]) for group in optimizer.param_groups)
    assert set(rates) == {name for name, p in model.named_parameters() if p.requires_grad}
    assert all(rate == (2e-5 if "multi_modal_projector" in name else 1e-4) for name, rate in rates.items())
    assert rates_of(optimizer) == (1e-4, 2e-5)
    for group in optimizer.param_groups:
        assert {p.ndim >= 2 for p in group["params"]} == {group["weight_decay"] > 0}


@pytest.mark.parametrize("kept", ["4bit", "8bit"])
def test_in_few_bits_the_projector_stays_whole_and_gets_gradients(base: str, kept: str) -> None:
    model = _adapted(base, kept)
    weights = {name: p for name, p in model.named_parameters() if "multi_modal_projector" in name and p.requires_grad}
    assert {p.dtype for p in weights.values()} == {torch.float32}
    _comparison(model, base).loss(_batch()).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in weights.values())
    packed = [p for name, p in model.named_parameters() if "language_model.layers.0.mlp.up_proj.base" in name]
    assert packed[0].dtype in (torch.uint8, torch.int8)


def test_a_directory_without_a_model_is_an_error_with_its_name(tmp_path: Path) -> None:
    for load in (load_processor, lambda name: load_model(name, base="fp32", device=CPU)):
        with pytest.raises(UsageError, match=f"cannot load .*{tmp_path}"):
            load(str(tmp_path))


def test_a_model_that_is_not_built_like_llava_is_refused(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(UsageError):
        load_model(str(tmp_path), base="fp32", device=CPU)


def test_a_directory_of_that_name_is_loaded_rather_than_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_size("tiny")
    (tmp_path / "tiny").mkdir()
    assert not is_size("tiny")
