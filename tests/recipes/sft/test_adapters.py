from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from stayfinite.errors import PoisonedState, UsageError
from stayfinite.recipes.chat.adapters import (
    attach,
    fingerprint,
    holds_trained,
    is_fresh,
    load_adapter,
    save_adapter,
    spare_memory,
    take_adapter,
    weights_of,
)
from stayfinite.recipes.chat.bases import Base, build_base, train_tokenizer

WEIGHTS = "adapter_model.safetensors"


def base_of(seed: int = 0) -> Base:
    torch.manual_seed(seed)
    return build_base("tiny", train_tokenizer(["How many m are 3 km?"]))


def trained(base: Base, value: float = 0.01) -> Any:
    model = attach(base.model, rank=4, alpha=8, dropout=0.0)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "lora_B" in name:
                tensor.fill_(value)
    return model


def saved(base: Base, place: Path, value: float = 0.01) -> Any:
    mark = fingerprint(base.model)
    model = trained(base, value)
    save_adapter(model, base.tokenizer, place, {"base": {"model": "here", "fingerprint": mark}})
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(10)[None]).logits


def test_a_saved_adapter_comes_back_on_its_base(tmp_path: Path) -> None:
    before = logits(saved(base_of(), tmp_path))
    after = logits(load_adapter(base_of().model, tmp_path))
    assert torch.equal(before, after)
    assert not torch.equal(before, logits(base_of().model))


def test_every_linear_layer_but_the_head_is_adapted_and_the_base_is_frozen() -> None:
    base = base_of()
    layers = [name for name, module in base.model.named_modules() if isinstance(module, torch.nn.Linear)]
    model = attach(base.model, rank=4, alpha=8, dropout=0.0)
    adapted = {name.partition(".lora_")[0] for name, _ in model.named_parameters() if ".lora_" in name}
    assert {name.removeprefix("base_model.model.") for name in adapted} == {n for n in layers if n != "lm_head"}
    assert all(parameter.requires_grad == ("lora_" in name) for name, parameter in model.named_parameters())


def test_an_adapter_of_another_training_of_the_same_shape_is_refused(tmp_path: Path) -> None:
    saved(base_of(), tmp_path)
    with pytest.raises(UsageError, match="trained on another base") as caught:
        load_adapter(base_of(seed=1).model, tmp_path)
    assert "--base" in caught.value.fix


def test_an_adapter_of_another_shape_is_refused_even_if_nothing_is_said_about_its_base(tmp_path: Path) -> None:
    saved(base_of(), tmp_path)
    (tmp_path / "sft.json").unlink()
    torch.manual_seed(0)
    other = build_base("small", train_tokenizer(["How many m are 3 km?"]))
    with pytest.raises(UsageError, match=r"does not fit: model.layers.0.mlp.down_proj has 1024, the adapter 256"):
        load_adapter(other.model, tmp_path)


def test_an_adapter_that_is_all_zeros_is_refused(tmp_path: Path) -> None:
    saved(base_of(), tmp_path, value=0.0)
    with pytest.raises(UsageError, match="changes nothing"):
        load_adapter(base_of().model, tmp_path)


def test_a_healthy_adapter_with_one_zero_tensor_is_taken(tmp_path: Path) -> None:
    saved(base_of(), tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    first = next(name for name in weights if "lora_B" in name)
    save_file(weights | {first: torch.zeros_like(weights[first])}, tmp_path / WEIGHTS)
    load_adapter(base_of().model, tmp_path)


def test_an_adapter_with_a_nan_is_refused(tmp_path: Path) -> None:
    saved(base_of(), tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    first = next(iter(weights))
    weights[first][0, 0] = float("nan")
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(PoisonedState, match="NaN or inf in base_model"):
        load_adapter(base_of().model, tmp_path)


def test_a_fresh_adapter_is_never_saved_over_a_trained_one(tmp_path: Path) -> None:
    saved(base_of(), tmp_path)
    before = (tmp_path / WEIGHTS).read_bytes()
    base = base_of()
    fresh = attach(base.model, rank=4, alpha=8, dropout=0.0)
    assert is_fresh(weights_of(fresh))
    with pytest.raises(UsageError, match="holds a trained adapter; an untrained one was not saved"):
        save_adapter(fresh, base.tokenizer, tmp_path, {})
    assert (tmp_path / WEIGHTS).read_bytes() == before
    with pytest.raises(UsageError, match="fresh"):
        save_adapter(fresh, base.tokenizer, tmp_path / "aside", {}, instead_of=tmp_path)
    saved(base_of(), tmp_path, value=0.02)  # a trained one may
    assert (tmp_path / WEIGHTS).read_bytes() != before


def test_the_best_adapter_of_a_run_is_found_and_a_directory_without_one_is_refused(tmp_path: Path) -> None:
    saved(base_of(), tmp_path / "best")
    load_adapter(base_of().model, tmp_path)
    with pytest.raises(UsageError, match="no adapter: .* is missing in .*elsewhere\n.*name the --output-dir"):
        load_adapter(base_of().model, tmp_path / "elsewhere")
    assert holds_trained(tmp_path / "best")
    assert not holds_trained(tmp_path)


def test_a_file_that_is_cut_off_is_an_error_with_its_name(tmp_path: Path) -> None:
    saved(base_of(), tmp_path)
    (tmp_path / WEIGHTS).write_bytes((tmp_path / WEIGHTS).read_bytes()[:100])
    with pytest.raises(UsageError, match=f"cannot read .*{WEIGHTS}"):
        load_adapter(base_of().model, tmp_path)


def test_the_best_adapter_is_put_back_into_the_living_model(tmp_path: Path) -> None:
    base = base_of()
    model = saved(base, tmp_path)
    before = logits(model)
    with torch.no_grad():
        for tensor in weights_of(model).values():
            tensor.add_(1.0)
    assert not torch.equal(before, logits(model))
    take_adapter(model, tmp_path)
    assert torch.equal(before, logits(model))


def test_the_fingerprint_knows_a_base_in_any_form() -> None:
    base = base_of()
    mark = fingerprint(base.model)
    assert fingerprint(base_of().model) == mark
    assert fingerprint(base.model.to(torch.bfloat16)) == mark
    assert fingerprint(attach(base_of().model, rank=2, alpha=2, dropout=0.0)) == mark
    assert fingerprint(base_of(seed=1).model) != mark


def test_gradients_flow_with_checkpointing() -> None:
    model = attach(base_of().model, rank=4, alpha=8, dropout=0.0).train()
    spare_memory(model)
    loss = model(input_ids=torch.arange(10)[None], labels=torch.arange(10)[None]).loss
    loss.backward()
    gradients = [parameter.grad for name, parameter in model.named_parameters() if "lora_B" in name]
    assert all(gradient is not None and bool(gradient.any()) for gradient in gradients)


def test_what_an_adapter_was_trained_on_is_written_beside_it(tmp_path: Path) -> None:
    saved(base_of(), tmp_path)
    record = json.loads((tmp_path / "sft.json").read_text())
    assert record["version"] == 1
    assert record["base"]["fingerprint"] == fingerprint(base_of().model)
