from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from stayfinite.recipes.chat.adapters import attach
from stayfinite.recipes.chat.bases import build_base, train_tokenizer
from stayfinite.recipes.chat.prompts import IGNORED, Example, Padding, Prompting
from stayfinite.recipes.chat.questions import Question
from stayfinite.recipes.policy.groups import Sampled, StartWeights, advantages_of, portions_of, sample_groups, scored
from stayfinite.recipes.policy.losses import PolicyLoss, log_probabilities, policy_loss
from stayfinite.recipes.running.processes import Place

CPU = torch.device("cpu")
ALONE = Place(device=CPU)


def by_hand(
    new: Tensor, old: Tensor, gains: Tensor, mask: Tensor, clip: float, kl: float, ref: Tensor | None, by_row: bool
) -> float:
    """The loss as the papers write it, a token at a time."""
    rows = []
    for row in range(len(new)):
        tokens = []
        for place in range(new.shape[1]):
            if not mask[row, place]:
                continue
            now, gain = float(new[row, place]), float(gains[row])
            ratio = math.exp(now - float(old[row, place]))
            loss = -min(ratio * gain, min(max(ratio, 1 - clip), 1 + clip) * gain)
            if ref is not None:
                apart = float(ref[row, place]) - now
                loss += kl * (math.exp(apart) - apart - 1)
            tokens.append(loss)
        rows.append(tokens)
    if by_row:
        return sum(sum(row) / len(row) for row in rows) / len(rows)
    return sum(map(sum, rows)) / sum(map(len, rows))


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("kl", [0.0, 0.3])
def test_the_loss_is_that_of_the_papers_token_by_token(by_row: bool, kl: float) -> None:
    torch.manual_seed(0)
    new, old, ref = (-torch.rand(5, 7) for _ in range(3))
    gains, mask = torch.randn(5), torch.arange(7) < torch.tensor([[7], [1], [3], [5], [2]])
    reference = ref if kl else None
    found = policy_loss(new, old, gains, mask, clip=0.2, kl=kl, reference=reference, length_normalized=by_row)
    assert float(found) == pytest.approx(by_hand(new, old, gains, mask, 0.2, kl, reference, by_row), rel=1e-5)


@pytest.mark.parametrize(("gain", "moved", "held"), [(1.0, 0.5, True), (1.0, -0.5, False), (-1.0, -0.5, True)])
def test_a_token_that_has_gone_far_enough_is_pushed_no_further_and_may_come_back(
    gain: float, moved: float, held: bool
) -> None:
    new = torch.tensor([[-1.0 + moved]], requires_grad=True)
    policy_loss(
        new, torch.tensor([[-1.0]]), torch.tensor([gain]), torch.ones(1, 1, dtype=torch.bool), clip=0.2
    ).backward()
    assert new.grad is not None
    assert (float(new.grad) == 0.0) == held


def test_a_group_with_a_runaway_ratio_is_left_out_whole_and_sound_groups_keep_their_bits() -> None:
    torch.manual_seed(0)
    new, old, gains = -torch.rand(4, 3), -torch.rand(4, 3), torch.randn(4)
    mask = torch.ones(4, 3, dtype=torch.bool)
    assert torch.equal(
        policy_loss(new, old, gains, mask, clip=0.2, group_size=2), policy_loss(new, old, gains, mask, clip=0.2)
    )
    wild = new.clone()
    wild[0, 1] = old[0, 1] + 200.0  # e^200: infinite
    wild.requires_grad_()
    loss = policy_loss(wild, old, gains, mask, clip=0.2, group_size=2)
    loss.backward()
    assert wild.grad is not None
    assert bool(loss.isfinite())
    assert not wild.grad[:2].any()
    # The groups that are left count as much as they did.
    kept = policy_loss(new[2:], old[2:], gains[2:], mask[2:], clip=0.2)
    assert loss.item() == pytest.approx(kept.item() / 2, rel=1e-6)


def test_log_probabilities_are_those_of_the_sampling_temperature_and_of_answers_alone() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[1, 4, IGNORED], [IGNORED, 0, 2]])
    found = log_probabilities(logits, labels, temperature=0.5)
    assert float(found[0, 1]) == pytest.approx(float(torch.log_softmax(logits[0, 1] / 0.5, -1)[4]))
    assert not found[labels == IGNORED].any()


@pytest.fixture(scope="module")
def prompting() -> Prompting:
    return Prompting(tokenizer=train_tokenizer(["How many g are 5 kg?", "How many mm are 17 km, please?"]))


@pytest.fixture
def model(prompting: Prompting) -> Any:
    torch.manual_seed(0)
    built = attach(build_base("tiny", prompting.tokenizer).model, rank=4, alpha=8.0, dropout=0.0, head=True)
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    return built.train()


def sampled_by(model: Any, prompting: Prompting) -> Sampled:
    questions = [
        Question(text="How many g are 5 kg?", answer="5000"),
        Question(text="mm of 17 km, please?", answer="1"),
    ]
    torch.manual_seed(1)
    found = sample_groups(
        model, prompting, questions, size=3, temperature=0.7, new_tokens=6, limit=64, readable=0.1,
        autocast=nullcontext, batch_size=2,
    )  # fmt: skip
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.1, 0.1, 0.1])
    return Sampled(
        examples=found.examples, texts=found.texts, rewards=rewards, advantages=advantages_of(rewards, 3), size=3,
        cut=found.cut,
    )  # fmt: skip


def test_a_group_holds_the_tokens_that_were_sampled_after_their_own_question(model: Any, prompting: Prompting) -> None:
    sampled = sampled_by(model, prompting)
    assert [each.prompt for each in sampled.examples[::3]] == [
        prompting.prompt("How many g are 5 kg?"), prompting.prompt("mm of 17 km, please?")
    ]  # fmt: skip
    assert all(1 <= len(each.completion) <= 6 for each in sampled.examples)
    assert len({tuple(each.completion) for each in sampled.examples}) > 2
    for each, cut in zip(sampled.examples, sampled.cut, strict=True):
        assert cut == (each.completion[-1] != prompting.end)
        assert prompting.end not in each.completion[:-1]


def test_a_ratio_begins_at_1_and_padding_has_no_part_in_the_loss(model: Any, prompting: Prompting) -> None:
    loss = PolicyLoss(model, CPU, temperature=0.7, clip=0.2, kl=0.0, length_normalized=False)
    sampled, padding = sampled_by(model, prompting), Padding(pad=int(prompting.tokenizer.pad_token_id))
    (portion,) = portions_of(sampled, padding, steps=1, rows=64, keep_equal=True, length_normalized=False, place=ALONE)
    batch = scored(portion.batches[0], loss.score, nullcontext, None)
    value = loss(batch)
    assert float(loss.signals()["ratio_max"]) == 1.0
    alone = []
    for row, example in enumerate(sampled.examples):
        single = Padding(pad=0, multiple=1)([example]) | {"advantages": sampled.advantages[row : row + 1]}
        single = scored(single, loss.score, nullcontext, None)
        assert single["old"].shape[1] == len(example.completion)
        alone.append(loss(single) * len(example.completion))
    tokens = sum(len(each.completion) for each in sampled.examples)
    assert value.item() == pytest.approx(sum(each.item() for each in alone) / tokens, abs=1e-6)


@pytest.mark.parametrize("by_row", [False, True])
def test_batches_of_a_step_add_up_to_it_and_groups_of_equal_rewards_are_left_out_without_a_trace(
    model: Any, prompting: Prompting, by_row: bool
) -> None:
    loss = PolicyLoss(model, CPU, temperature=0.7, clip=0.2, kl=0.0, length_normalized=by_row)
    sampled, padding = sampled_by(model, prompting), Padding(pad=int(prompting.tokenizer.pad_token_id))

    def gradients(rows: int, keep_equal: bool) -> list[Tensor]:
        (portion,) = portions_of(
            sampled, padding, steps=1, rows=rows, keep_equal=keep_equal, length_normalized=by_row, place=ALONE
        )  # fmt: skip
        assert len(portion.batches) == (1 if rows > 3 or not keep_equal else 2)
        assert portion.signals["equal_groups"] == 0.5
        model.zero_grad()
        for batch, share in zip(portion.batches, portion.shares, strict=True):
            (loss(scored(batch, loss.score, nullcontext, None)) * share).backward()
        return [each.grad.clone() for each in model.parameters() if each.grad is not None]

    whole = gradients(64, True)
    for other in (gradients(3, True), gradients(64, False)):
        assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(whole, other, strict=True))


def test_a_step_of_equal_rewards_alone_is_still_a_step_and_changes_nothing(model: Any, prompting: Prompting) -> None:
    sampled = sampled_by(model, prompting)
    flat = Sampled(
        examples=sampled.examples, texts=sampled.texts, rewards=torch.zeros(6), advantages=torch.zeros(6), size=3,
        cut=sampled.cut,
    )  # fmt: skip
    (portion,) = portions_of(
        flat, Padding(pad=0), steps=1, rows=64, keep_equal=False, length_normalized=False, place=ALONE
    )
    loss = PolicyLoss(model, CPU, temperature=0.7, clip=0.2, kl=0.0, length_normalized=False)
    loss(scored(portion.batches[0], loss.score, nullcontext, None)).backward()
    assert not any(bool(each.grad.any()) for each in model.parameters() if each.grad is not None)
    assert portion.signals["equal_groups"] == 1.0


def test_the_reference_is_the_start_and_the_trained_weights_come_back(model: Any, prompting: Prompting) -> None:
    example = Example(prompting.prompt("How many g are 5 kg?"), prompting.completion(Question(text="", answer="5000")))
    batch = Padding(pad=0)([example]) | {"advantages": torch.ones(1)}
    loss = PolicyLoss(model, CPU, temperature=1.0, clip=0.2, kl=0.1, length_normalized=False)
    start = StartWeights(model)
    before = scored(batch, loss.score, nullcontext, start)
    assert torch.equal(before["old"], before["reference"])
    with torch.no_grad():
        for each in model.parameters():
            if each.requires_grad:
                each.add_(0.05)
    after = scored(batch, loss.score, nullcontext, start)
    assert torch.equal(after["reference"], before["old"])
    assert not torch.equal(after["old"], before["old"])
    assert loss(after).item() > loss(after | {"reference": after["old"]}).item()
