from __future__ import annotations

import pickle
from collections import Counter

import pytest
import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.drawing import GlobalBatches, Key, Noise
from stayfinite.recipes.diffusion.modes import TASKS, amounts, both, hidden, kept, shares, target, task_of

SCHEDULES = ("linear", "cosine", "sigmoid")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_goes_down_from_nearly_all_to_nearly_nothing(schedule):
    left = kept(schedule, torch.linspace(0, 1, 101))
    assert (left.diff() <= 0).all()
    assert 0.99 < float(left[0]) < 1
    assert 0 < float(left[-1]) < 0.01
    signal, sigma = amounts(schedule, torch.linspace(0, 1, 101))
    assert torch.allclose(signal**2 + sigma**2, torch.ones(101))
    assert float(hidden(schedule, torch.ones(()))) > 0.99


def test_the_schedules_differ():
    left = [tuple(round(float(kept(schedule, torch.tensor(t))), 2) for t in (0.1, 0.25, 0.5)) for schedule in SCHEDULES]
    assert len(set(left)) == 3


@pytest.mark.parametrize("kind", ["epsilon", "x0", "v"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_the_model_says_leads_back_to_sample_and_noise(kind, schedule):
    sample, noise = torch.randn(50, 3, dtype=torch.float64), torch.randn(50, 3, dtype=torch.float64)
    signal, sigma = (each[:, None].double() for each in amounts(schedule, torch.linspace(0, 1, 50)))
    noisy = signal * sample + sigma * noise
    found = both(kind, target(kind, sample, noise, signal, sigma), noisy, signal, sigma)
    assert torch.allclose(found[0], sample, atol=1e-5)
    assert torch.allclose(found[1], noise, atol=1e-5)


def draw(mode: str, seed: int, turn: int = 0) -> dict[str, torch.Tensor]:
    mask = torch.arange(12) < 9
    return Noise(mode=mode, schedule="cosine").draw(torch.arange(12), mask, torch.ones(4, 3), seed, turn)  # type: ignore[arg-type]


def test_a_row_has_the_same_noise_from_the_same_seed():
    first, again, other = draw("random", 5), draw("random", 5), draw("random", 6)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["noise"], other["noise"])


def test_drawing_leaves_the_random_numbers_of_training_alone():
    before = torch.get_rng_state()
    draw("random", 3)
    assert torch.equal(before, torch.get_rng_state())


def test_l2t_has_clean_latents_and_no_latent_loss():
    row = draw("l2t", 1)
    assert float(row["latent_time"]) == 0
    assert bool(row["has_text_loss"])
    assert not bool(row["has_latent_loss"])


def test_t2l_hides_no_token():
    row = draw("t2l", 1)
    assert float(row["text_time"]) == 0
    assert not row["covered"].any()
    assert bool(row["has_latent_loss"])


def test_padding_is_never_hidden_and_something_always_is():
    for seed in range(50):
        covered = draw("unconditional", seed)["covered"]
        assert not covered[9:].any()
        assert covered[:9].any()


def test_a_text_without_a_token_hides_nothing():
    noise = Noise(mode="l2t", schedule="linear")
    row = noise.draw(torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.bool), torch.ones(2, 2), 1, 0)
    assert not row["covered"].any()


def test_the_rows_take_turns_in_sequential_and_draw_in_random():
    chance = torch.Generator().manual_seed(0)
    assert [task_of("sequential", turn, chance) for turn in range(6)] == [*TASKS, *TASKS]
    counts = Counter(task_of("random", 0, chance) for _ in range(300))
    assert all(70 < counts[task] < 130 for task in TASKS)
    assert shares("sequential") == (2 / 3, 2 / 3)


def plain(batches: GlobalBatches) -> list[list[tuple[int, int, int]]]:
    return [[(int(key), key.seed, key.turn) for key in batch] for batch in batches]


def test_a_key_reaches_a_worker_whole():
    key = pickle.loads(pickle.dumps(Key(5, 6, 7)))
    assert (int(key), key.seed, key.turn) == (5, 6, 7)


def test_two_processes_share_out_the_rows_of_one():
    alone = plain(GlobalBatches(range(100, 140), 8, seed=3))
    ranks = [plain(GlobalBatches(range(100, 140), 8, rank=rank, ranks=2, seed=3)) for rank in range(2)]
    assert [sorted(a + b) for a, b in zip(*ranks, strict=True)] == [sorted(batch) for batch in alone]
    assert len({key[0] for batch in alone for key in batch}) == 40


def test_every_epoch_has_another_order_and_other_noise():
    batches = GlobalBatches(range(16), 8)
    first, second = plain(batches), plain(batches)
    assert first != second
    assert not {key[1] for batch in first for key in batch} & {key[1] for batch in second for key in batch}


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(UsageError, match="a batch of 16 rows over 2 ranks exceeds the 15 training rows"):
        GlobalBatches(range(15), 16, ranks=2)
