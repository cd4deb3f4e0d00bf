"""Which models ranks can compute together; the others are refused in words."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from stayfinite.errors import UsageError
from stayfinite.recipes.running.processes import place_of_process
from stayfinite.recipes.running.sharding import planned_layers, refuse_unshardable, refuse_unsplittable
from stayfinite.recipes.translate import Translate

LLAMA: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 6,
    "num_key_value_heads": 3, "pad_token_id": 0,
}  # fmt: skip
T5: dict[str, Any] = {"vocab_size": 32, "d_model": 24, "d_kv": 4, "d_ff": 40, "num_layers": 1, "num_heads": 6}


def llama(**more: Any) -> Any:
    kind: Any = LlamaConfig
    return LlamaForCausalLM(kind(**(LLAMA | more)))


def t5(**more: Any) -> Any:
    kind: Any = T5Config
    return T5ForConditionalGeneration(kind(**(T5 | more)))


def test_every_matrix_of_a_t5_is_in_parts():
    model = t5(feed_forward_proj="gated-gelu")
    planned = {f"{each.name}.weight" for each in planned_layers(model, 2)}
    whole = {name for name, _ in model.named_parameters() if name not in planned}
    assert whole
    assert all(name.endswith("norm.weight") for name in whole), "norms are vectors"


def test_every_matrix_of_a_llama_is_in_parts_by_the_plan_of_transformers():
    model = llama(num_key_value_heads=6)
    planned = {f"{each.name}.weight" for each in planned_layers(model, 2)}
    assert {name for name, parameter in model.named_parameters() if parameter.ndim == 2} == planned


@pytest.mark.parametrize(
    ("model", "ranks", "words", "fix"),
    [
        (t5, 4, "6 attention heads cannot be shared out evenly among 4 ranks", "--tensor-parallel 3"),
        (llama, 2, "3 key-value heads cannot be shared out evenly among 2 ranks", "leave --tensor-parallel out"),
        (lambda: t5(num_heads=3), 3, "the 40 features of .*wi cannot be shared out evenly", "--tensor-parallel 2"),
    ],
)
def test_what_cannot_be_shared_out_evenly_is_refused_with_a_number_that_can(model, ranks, words, fix):
    with pytest.raises(UsageError, match=words) as refused:
        refuse_unsplittable(model(), ranks)
    assert fix in refused.value.fix
    refuse_unsplittable(model(), 1)


def test_a_family_without_a_plan_is_refused_by_its_name():
    kind: Any = BartConfig
    bart = BartForConditionalGeneration(
        kind(vocab_size=32, d_model=8, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=8, decoder_ffn_dim=8,
             encoder_attention_heads=2, decoder_attention_heads=2)
    )  # fmt: skip
    with pytest.raises(UsageError, match="there is no plan for models of the family bart"):
        refuse_unsplittable(bart, 2)


def test_a_plan_with_layers_that_torch_has_no_style_for_is_refused():
    kind: Any = Phi3Config
    phi = Phi3ForCausalLM(kind(**(LLAMA | {"num_key_value_heads": 6})))
    with pytest.raises(UsageError, match="the plan for phi3 has layers of the kind rowwise_split_input"):
        refuse_unsplittable(phi, 2)


def test_one_process_cannot_compute_together(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with (
        pytest.raises(UsageError, match="--tensor-parallel 2 needs a multiple of 2 ranks, not 1") as refused,
        place_of_process("cpu", 2),
    ):
        pass
    assert "--nproc-per-node 2" in refused.value.fix


def test_what_does_not_work_in_parts_is_refused_by_both_flags():
    with pytest.raises(UsageError, match="--tensor-parallel and --ema cannot be combined"):
        refuse_unshardable(Translate(tensor_parallel=2), ema=0.9)
