"""Batches of any loader: a position, a way past what is broken, and a way back into the middle of an epoch."""

from __future__ import annotations

import json

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from stayfinite import Guard, Policy, TrainingStopped
from stayfinite.errors import LoaderFailed, UsageError
from stayfinite.guard.feeding.batches import Batches
from stayfinite.guard.feeding.ledger import Ledger
from tiny_training import Lines


class Numbers(Dataset):
    def __init__(self, length=24, corrupt=()):
        self.length, self.corrupt = length, set(corrupt)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index in self.corrupt:
            raise OSError(f"item {index} cannot be read")
        return torch.tensor(float(index))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(24.0))


def guard_in(folder=None, **settings):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return Guard(model, optimizer, policy=Policy(**settings), run_dir=folder, console=Lines())


def listed(batch):
    return batch.tolist() if isinstance(batch, torch.Tensor) else list(batch)


SOURCES = {
    "map-style": lambda: DataLoader(Numbers(), batch_size=4),
    "shuffled": lambda: DataLoader(Numbers(), batch_size=4, shuffle=True),
    "two workers": lambda: DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2),
    "one at a time": lambda: DataLoader(Numbers(), batch_size=None, shuffle=True),
    "iterable": lambda: DataLoader(Stream(), batch_size=4),
    "a list": lambda: [[float(i)] for i in range(8)],
    "own generator": lambda: DataLoader(
        Numbers(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(9)
    ),
    "distributed sampler": lambda: DataLoader(
        Numbers(), batch_size=4, sampler=torch.utils.data.DistributedSampler(Numbers(), 2, 0, shuffle=True)
    ),
}


def plain(source):
    return [listed(batch) if torch.as_tensor(batch).dim() else [float(batch)] for batch in source]


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_batches_are_those_of_the_loader_itself(source):
    torch.manual_seed(1)
    expected = [plain(source_) for source_ in [source()] for _ in range(2)]
    batches = guard_in().batches(source())
    torch.manual_seed(1)
    assert [plain(batches) for _ in range(2)] == expected


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("stop_after", [1, 3, 5])
def test_an_epoch_can_be_joined_in_the_middle(source, stop_after):
    torch.manual_seed(1)
    batches = guard_in().batches(source())
    seen, saved = [], None
    for _ in range(2):
        for batch in batches:
            seen.append(plain([batch])[0])
            if len(seen) == stop_after:
                saved, rng = batches.state_dict(), torch.get_rng_state()
    torch.manual_seed(77)
    again = guard_in().batches(source())
    again.load_state_dict(saved)
    torch.set_rng_state(rng)
    assert [plain([batch])[0] for _ in range(2) for batch in again] == seen[stop_after:]


def test_the_same_loader_has_the_same_batches():
    guard, loader = guard_in(), DataLoader(Numbers())
    assert guard.batches(loader) is guard.batches(loader)
    assert len(guard.batches(loader)) == 24


@pytest.mark.parametrize("workers", [0, 2])
def test_a_corrupt_item_costs_its_batch_and_is_recorded(tmp_path, workers):
    guard = guard_in(tmp_path)
    loader = DataLoader(Numbers(corrupt=[6, 17]), batch_size=4, num_workers=workers)
    seen = [listed(batch) for batch in guard.batches(loader)]
    assert [batch[0] for batch in seen] == [0, 8, 12, 20]
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(each["batch"], each["items"]) for each in lines if each["event"] == "loader-error"] == [
        (1, [6]),
        (4, [17]),
    ]
    assert all("cannot be read" in each["error"] for each in lines)


class Named(Numbers):
    def __getitem__(self, index):
        if index in self.corrupt:
            raise UsageError(f"picture-{index}.png cannot be read", fix="replace it")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_with_a_fix_is_told_by_what_happened(tmp_path, workers):
    guard = guard_in(tmp_path)
    loader = DataLoader(Named(corrupt=[6]), batch_size=4, num_workers=workers)
    assert len(list(guard.batches(loader))) == 5
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [each["error"].rpartition(": ")[2] for each in lines if each["event"] == "loader-error"] == [
        "picture-6.png cannot be read"
    ]


def test_too_many_corrupt_items_stop_the_training_with_a_code_of_their_own(tmp_path):
    guard = guard_in(tmp_path, max_loader_errors=2)
    loader = DataLoader(Numbers(corrupt=range(8, 24)), batch_size=4)
    with pytest.raises(LoaderFailed, match="3 batches failed to load") as caught:
        list(guard.batches(loader))
    assert isinstance(caught.value, TrainingStopped)
    assert caught.value.exit_code == 88


def test_items_that_are_no_numbers_count_too():
    class ByName(Numbers):
        def __getitem__(self, item):
            return super().__getitem__(int(item[0]))

    names = [(str(number), "noise") for number in range(24)]
    loader = DataLoader(ByName(corrupt=range(8, 24)), batch_size=4, sampler=names)
    with pytest.raises(LoaderFailed, match="3 batches failed to load"):
        list(guard_in(max_loader_errors=2).batches(loader))


def test_validation_batches_are_never_called_guilty(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    policy = Policy(max_vetoes_in_a_row=0, max_cuts=0, prove_steps=2)
    guard = Guard(model, optimizer, policy=policy, run_dir=tmp_path, console=Lines())
    training = TensorDataset(torch.rand(12, 1))
    train, check = DataLoader(training, batch_size=1), DataLoader(training, batch_size=4)
    for number, (x,) in enumerate(guard.batches(train)):
        if number == 8:
            with torch.no_grad():
                for (each,) in guard.batches(check):
                    model(each)
        guard.step(model(x).square().mean() * (torch.nan if number == 9 else 1))
    ledger = json.loads((tmp_path / "ledger.json").read_text())
    assert [len(each["batches"]) > 0 for each in ledger["loaders"]] == [True, False]


class OneBroken(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, item):
        if item == 5:
            raise OSError("cannot be read")
        return torch.tensor(float(item))


def test_an_item_that_fails_in_every_epoch_counts_once():
    told = []
    batches = Batches(
        DataLoader(OneBroken(), batch_size=2),
        ledger=Ledger(),
        max_errors=1,
        tell=lambda event, details: told.append((event, details["items"])),
        agree=lambda supply: supply,
        handed=lambda place: None,
        stop=lambda error: error,
    )
    assert [len(list(batches)) for _ in range(4)] == [3, 3, 3, 3]
    assert told == [("loader-error", [5])] * 4
