"""Rows that begin alike are computed as one row; nobody can tell by the loss or the gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from quick_ones import diagonal
from stayfinite.recipes.chat.adapters import attach, spare_memory
from stayfinite.recipes.chat.bases import train_tokenizer
from stayfinite.recipes.chat.evaluating import generate_tokens
from stayfinite.recipes.chat.losses import PACKABLE, loss_of, packed
from stayfinite.recipes.chat.prompts import Example, Padding, Prompting

CPU = torch.device("cpu")
SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "head_dim": 8, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "tie_word_embeddings": False, "attention_dropout": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
}  # fmt: skip
BEGINNING = list(range(3, 33))
ROWS = [Example([*BEGINNING, *own], [40 + len(own), 41, 2]) for own in ([50], [51, 52, 53], [50, 54], [55] * 6)]
"""Of 34 to 39 tokens, the first 30 the same; two rows begin alike for one more."""


def base(kind: str, **more: Any) -> Any:
    """A small model with random weights, large enough for attention to matter."""
    torch.manual_seed(0)
    heads = {} if kind in ("gpt2", "gpt_neox") else {"num_key_value_heads": 2}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(SHAPE | heads | more)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    return model


def adapted(kind: str, dropout: float = 0.0, **more: Any) -> Any:
    model = attach(base(kind, **more), rank=4, alpha=8.0, dropout=dropout)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return model.train()


def lengths_seen(model: Any) -> list[tuple[int, ...]]:
    """The shapes of the tokens that the model is given from now on."""
    seen: list[tuple[int, ...]] = []
    model.get_base_model().register_forward_pre_hook(
        lambda _, __, given: seen.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    return seen


def loss_and_gradients(model: Any, batch: dict[str, Tensor], device: torch.device = CPU) -> tuple[Tensor, Tensor]:
    model.zero_grad()
    loss = loss_of(model, device)(batch)
    loss.backward()
    return loss.detach(), torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])


def plainly(model: Any, batch: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor]:
    with monkeypatch.context() as changed:
        changed.setattr("stayfinite.recipes.chat.losses.is_packable", lambda _: False)
        return loss_and_gradients(model, batch)


@pytest.mark.filterwarnings("ignore:fan_in_fan_out")  # peft, of GPT-2's layers
@pytest.mark.parametrize("kind", sorted(PACKABLE))
def test_the_loss_and_every_gradient_are_those_of_the_padded_batch(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = adapted(kind), Padding(pad=0)(ROWS)
    seen = lengths_seen(model)
    loss, gradients = plainly(model, batch, monkeypatch)
    found, packed_gradients = loss_and_gradients(model, batch)
    assert seen == [(4, 40), (1, 30 + sum(row.length - 30 for row in ROWS))]
    assert float(loss) > 0.5
    torch.testing.assert_close(found, loss, rtol=1e-5, atol=1e-6)
    assert float((packed_gradients - gradients).norm() / gradients.norm()) < 1e-4


def test_bf16_differs_by_no_more_than_its_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = adapted("llama"), Padding(pad=0)(ROWS)
    exact, exact_gradients = plainly(model, batch, monkeypatch)
    with torch.autocast("cpu", torch.bfloat16):
        loss, gradients = plainly(model, batch, monkeypatch)
        found, packed_gradients = loss_and_gradients(model, batch)
    off, packed_off = (
        float((each - exact_gradients).norm() / exact_gradients.norm()) for each in (gradients, packed_gradients)
    )
    assert 0 < packed_off < 2 * off + 1e-3
    torch.testing.assert_close(found, exact, rtol=0, atol=2 * float((loss - exact).abs()) + 0.02)


def test_activations_that_are_computed_twice_give_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = adapted("llama"), Padding(pad=0)(ROWS)
    _, gradients = plainly(model, batch, monkeypatch)
    spare_memory(model)
    seen = lengths_seen(model)
    _, found = loss_and_gradients(model, batch)
    assert seen[0][0] == 1
    torch.testing.assert_close(found, gradients, rtol=1e-4, atol=1e-6)


def test_with_dropout_rows_are_packed_in_evaluation_alone() -> None:
    """Packed rows would share what is dropped of their beginning."""
    model, batch = adapted("llama", dropout=0.1), Padding(pad=0)(ROWS)
    seen = lengths_seen(model)
    compute = loss_of(model, CPU)
    compute(batch)
    compute_in_training, model = seen[-1], model.eval()
    compute(batch)
    assert (compute_in_training, seen[-1][0]) == ((4, 40), 1)


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        pytest.param(ROWS[:1], {}, id="one row"),
        pytest.param([Example([number, *BEGINNING], [2]) for number in (40, 41)], {}, id="nothing in common"),
        pytest.param([Example([3, *[number] * 30], [2]) for number in (40, 41)], {}, id="too little in common"),
        pytest.param(ROWS, {"sliding_window": 20}, id="a window that is shorter than a row"),
        pytest.param([Example([], [*BEGINNING, number]) for number in (40, 41)], {}, id="all of it supervised"),
    ],
)
def test_a_batch_that_gains_nothing_or_would_change_stays_as_it_is(rows: list[Example], more: dict[str, Any]) -> None:
    config = AutoConfig.for_model("mistral", **(SHAPE | {"sliding_window": None} | more))
    assert packed(Padding(pad=0, multiple=1)(rows), config) is None
    assert packed(Padding(pad=0)(ROWS), AutoConfig.for_model("mistral", **(SHAPE | {"sliding_window": 64}))) is not None


def test_what_predicts_the_first_token_of_an_answer_is_each_rows_own() -> None:
    """Also where the questions are the same to their last token, and only the answers differ."""
    batch = Padding(pad=0)([Example(BEGINNING, [number, 2]) for number in (40, 41, 42)])
    found = packed(batch, AutoConfig.for_model("llama", **SHAPE))
    assert found is not None
    assert found.given["position_ids"][0, :30].tolist() == list(range(30))
    assert found.labels.tolist() == [[40, 2, 41, 2, 42, 2]]
    last = BEGINNING[-1]
    assert found.given["input_ids"][0, found.given["logits_to_keep"]].tolist() == [last, 40, last, 41, last, 42]


def test_a_model_whose_rows_would_mix_is_left_alone() -> None:
    """A convolution looks at its neighbors, whatever the mask says."""
    model = base("bamba", mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=1, mamba_d_state=8, attn_layer_indices=[1])
    shapes: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(
        lambda _, __, given: shapes.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    loss_of(model.train(), CPU)(Padding(pad=0)(ROWS))
    assert shapes == [(4, 40)]


@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
@pytest.mark.parametrize(("kind", "sampling"), diagonal(sorted(PACKABLE), [{}, {"samples": 2, "temperature": 1.0}]))
def test_answers_are_the_same_where_the_beginning_of_all_questions_is_read_once(
    kind: str, sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = ["5 g in kg?", "How many mm are 12 km?", "Convert 9 kg."]
    tokenizer = train_tokenizer(questions)
    prompting = Prompting(tokenizer=tokenizer, system="Answer the question, please.")
    model = adapted(kind, vocab_size=len(tokenizer), bos_token_id=tokenizer.bos_token_id)
    seen = lengths_seen(model)

    def said() -> list[list[int]]:
        seen.clear()
        torch.manual_seed(0)
        return generate_tokens(model, prompting, questions, new_tokens=8, batch_size=2, **sampling)

    found, read = said(), sum(rows * tokens for rows, tokens in seen)
    monkeypatch.setattr("stayfinite.recipes.chat.evaluating.is_packable", lambda _: False)
    assert found == said()
    assert len({tuple(answer) for answer in found}) > 1
    assert read < sum(rows * tokens for rows, tokens in seen)
