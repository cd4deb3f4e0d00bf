"""Sampler and trainer disagree: the one thing that makes them differ is proved, and agreement is left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stayfinite import rl
from stayfinite.errors import UsageError

transformers = pytest.importorskip("transformers")


def policy(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=40, n_positions=32, n_embd=32, n_layer=2, n_head=2, initializer_range=0.4,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).train()


def batch() -> dict[str, Tensor]:
    """Prompts of different lengths, padded on the left."""
    drawn = torch.Generator().manual_seed(1)
    attention = torch.ones(6, 20, dtype=torch.long)
    for row in range(6):
        attention[row, :row] = 0
    mask = torch.zeros(6, 20, dtype=torch.bool)
    mask[:, 10:] = True
    tokens = torch.randint(2, 40, (6, 20), generator=drawn) * attention
    return {"tokens": tokens, "mask": mask, "attention_mask": attention}


@torch.no_grad()
def sampled(model: nn.Module, given: dict[str, Tensor], temperature: float = 1.0, **more: Any) -> Tensor:
    """What a careful sampler tells: eval mode, positions that do not count the padding."""
    positions = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    model.eval()
    logits = model(given["tokens"], attention_mask=given["attention_mask"], position_ids=positions, **more).logits
    model.train()
    own = (logits[:, :-1].float() / temperature).log_softmax(-1).gather(-1, given["tokens"][:, 1:, None])[..., 0]
    return torch.cat([torch.zeros(len(own), 1), own], dim=1)


def right_positions(given: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"position_ids": (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)}


def causes(found: rl.Mismatch) -> list[str]:
    return [each.name for each in found.causes]


def test_the_same_pass_agrees() -> None:
    model, given = policy(), batch()
    found = rl.explain_mismatch(model, sampler_logprobs=sampled(model, given), **given, **right_positions(given))
    assert not found.causes
    assert str(found).startswith("sampler and trainer agree")


def test_rounding_of_another_format_is_no_fault() -> None:
    given = batch()
    model = policy()
    for each in model.parameters():
        each.data *= 0.5
    told = sampled(model, given)
    model = model.to(torch.bfloat16)
    found = rl.explain_mismatch(model, sampler_logprobs=told, **given, **right_positions(given))
    assert not found.causes


@pytest.mark.parametrize("temperature", [0.6, 1.5])
def test_another_temperature_is_found_with_its_value(temperature: float) -> None:
    model, given = policy(), batch()
    told = sampled(model, given, temperature)
    found = rl.explain_mismatch(model, sampler_logprobs=told, **given, **right_positions(given))
    assert causes(found) == ["temperature"]
    assert f"divide the logits by {temperature:g} " in found.causes[0].fix
    assert found.left < 1e-2 * found.mean


def test_a_model_with_a_value_head_gives_its_logits_first() -> None:
    class Actor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.value = policy(), nn.Linear(1, 1)

        def forward(self, tokens: Tensor, **more: Tensor) -> tuple[Tensor, Tensor]:
            return self.body(tokens, **more).logits, self.value(tokens[..., None].float())

    model, given = Actor(), batch()
    told = sampled(model.body, given, temperature=0.7)
    found = rl.explain_mismatch(model, sampler_logprobs=told, **given, **right_positions(given))
    assert causes(found) == ["temperature"]
    with pytest.raises(UsageError, match="no logits"):
        rl.explain_mismatch(nn.Identity(), given["tokens"], told, given["mask"])


def test_dropout_in_the_training_pass_is_found() -> None:
    model, given = policy(dropout=0.2), batch()
    told = sampled(model, given)
    found = rl.explain_mismatch(model, sampler_logprobs=told, **given, **right_positions(given))
    assert causes(found) == ["eval mode"]
    assert found.left < 1e-4


def test_two_causes_are_both_found() -> None:
    model, given = policy(dropout=0.2), batch()
    told = sampled(model, given, 0.5)
    found = rl.explain_mismatch(model, sampler_logprobs=told, **given, **right_positions(given))
    assert sorted(causes(found)) == ["eval mode", "temperature"]
    assert found.left < 1e-2 * found.mean


def test_positions_that_count_the_padding_are_found() -> None:
    model, given = policy(), batch()
    found = rl.explain_mismatch(model, sampler_logprobs=sampled(model, given), **given)
    assert causes(found) == ["positions from the padding"]


def test_numbers_one_token_out_of_place_are_found() -> None:
    model, given = policy(), batch()
    told = sampled(model, given).roll(-1, dims=1)
    found = rl.explain_mismatch(model, sampler_logprobs=told, **given, **right_positions(given))
    assert causes(found) == ["shifted by -1"]


def test_another_template_is_found() -> None:
    model, given = policy(), batch()
    other = given | {"tokens": given["tokens"].clone()}
    other["tokens"][:, 8:10] = 7
    told = sampled(model, other)
    found = rl.explain_mismatch(
        model,
        sampler_logprobs=told,
        tokens_as_sampled=(other["tokens"], other["mask"]),
        **given,
        **right_positions(given),
    )
    assert causes(found) == ["tokens as sampled"]


def test_weights_of_another_moment_are_not_explained_away() -> None:
    given = batch()
    model = policy()
    told = sampled(model, given)
    with torch.no_grad():
        for each in model.parameters():
            each += 0.2 * torch.randn_like(each)
    found = rl.explain_mismatch(model, sampler_logprobs=told, **given, **right_positions(given))
    assert not found.explained
    assert "cause not found" in str(found)


def test_the_tokens_that_differ_most_are_listed_and_the_model_is_left_as_it_was() -> None:
    model, given = policy(dropout=0.2), batch()
    told = sampled(model, given)
    told[2, 15] -= 40
    before = {name: each.clone() for name, each in model.state_dict().items()}
    model.transformer.h[0].eval()
    modes = [module.training for module in model.modules()]
    generator = torch.get_rng_state()
    found = rl.explain_mismatch(model, sampler_logprobs=told, decode=lambda ids: f"<{ids[0]}>", **given)
    assert (found.tokens[0].row, found.tokens[0].place) == (2, 15)
    assert f"'<{int(given['tokens'][2, 15])}>'" in str(found)
    assert modes == [module.training for module in model.modules()]
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())


def test_what_does_not_fit_together_is_refused() -> None:
    model, given = policy(), batch()
    with pytest.raises(UsageError, match="sampler_logprobs has shape"):
        rl.explain_mismatch(model, sampler_logprobs=torch.zeros(6, 19), **given)
    with pytest.raises(UsageError, match="mask is empty"):
        rl.explain_mismatch(model, given["tokens"], torch.zeros(6, 20), torch.zeros(6, 20, dtype=torch.bool))
