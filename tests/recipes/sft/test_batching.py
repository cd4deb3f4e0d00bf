from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import torch

from stayfinite.recipes.chat.losses import loss_of
from stayfinite.recipes.chat.prompts import IGNORED, Example, Padding, loader_of, shared_batches, supervised
from stayfinite.recipes.running.sharing import weights_in_step


def rows(count: int) -> list[Example]:
    return [Example([5] * (3 + number % 7), [7, 8, 2][: 1 + number % 3]) for number in range(count)]


def test_every_row_comes_once_an_epoch_in_a_new_order() -> None:
    batches = shared_batches([row.length for row in rows(50)], 8)
    one, two = list(batches), list(batches)
    assert len(one) == len(batches) == 7
    assert sorted(chain(*one)) == sorted(chain(*two)) == list(range(50))
    assert one != two


@pytest.mark.parametrize("count", [2, 3])
def test_processes_share_the_batches_of_one_with_all_their_rows(count: int) -> None:
    lengths = [row.length for row in rows(48)]
    whole = list(shared_batches(lengths, 4 * count, seed=3))
    shares = [list(shared_batches(lengths, 4 * count, rank=rank, count=count, seed=3)) for rank in range(count)]
    assert all(sorted(batch) == sorted(chain(*share)) for batch, *share in zip(whole, *shares, strict=True))


def test_no_process_is_left_without_a_row() -> None:
    shares = [list(shared_batches([4] * 13, 12, rank=rank, count=3)) for rank in range(3)]
    assert len({len(share) for share in shares}) == 1
    assert all(batch for share in shares for batch in share)
    assert {row for share in shares for batch in share for row in batch} == set(range(13))


def test_an_epoch_is_the_same_from_the_same_state_of_the_generator() -> None:
    loader = loader_of(rows(40), 0, size=8, seed=1)
    state = loader.batch_sampler.generator.get_state()  # type: ignore[union-attr]
    one = [batch["input_ids"] for batch in loader]
    loader.batch_sampler.generator.set_state(state)  # type: ignore[union-attr]
    assert all(torch.equal(left, right["input_ids"]) for left, right in zip(one, loader, strict=True))


def test_padding_fills_up_to_a_multiple_and_is_not_attended_to() -> None:
    batch = Padding(pad=0)([Example([5, 5, 5], [7, 2]), Example([5] * 8, [7, 8, 2])])
    assert batch["input_ids"].shape == (2, 16)
    assert batch["attention_mask"].sum(1).tolist() == [5, 11]
    assert batch["labels"][0].tolist() == [IGNORED] * 3 + [7, 2] + [IGNORED] * 11
    assert int(supervised(batch)) == 5


class Counting(torch.nn.Module):
    """Logits that depend on the place alone, and a count of how many were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(64, 11))
        self.kept: list[int] = []

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int = 0) -> Any:
        logits = (self.table[: input_ids.shape[1]] + torch.eye(11)[input_ids])[:, -logits_to_keep:]
        self.kept.append(logits.shape[1])

        class Output:
            pass

        Output.logits = logits  # type: ignore[attr-defined]
        return Output


def test_the_loss_is_that_of_all_logits_though_only_those_of_answers_are_computed() -> None:
    torch.manual_seed(0)
    model = Counting()
    batch = Padding(pad=0)([Example([5] * 9, [7, 2]), Example([5] * 12, [7, 8, 2])])
    loss = loss_of(model, torch.device("cpu"))(batch)
    logits = model(batch["input_ids"], batch["attention_mask"]).logits
    expected = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=IGNORED
    )
    assert torch.allclose(loss, expected)
    assert model.kept[0] == 16 - 8


def test_every_supervised_token_counts_the_same_whatever_batch_it_is_in() -> None:
    counts = [torch.tensor(3), torch.tensor(9)]
    shares = weights_in_step(counts, 1)
    assert [float(share) for share in shares] == pytest.approx([0.25, 0.75])


def test_a_step_without_a_supervised_token_is_no_division_by_zero() -> None:
    (share,) = weights_in_step([torch.tensor(0)], 1)
    assert float(share) == 0.0


def test_no_rows_make_no_batch() -> None:
    assert list(shared_batches([], 8)) == []
    assert len(shared_batches([], 8)) == 0
