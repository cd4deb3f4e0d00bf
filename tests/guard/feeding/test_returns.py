"""A finite batch that was skipped comes back once, and what was never learned from is told."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from stayfinite import Guard, Policy
from stayfinite.errors import StateError
from stayfinite.guard.feeding.ledger import Fate, Ledger
from tiny_training import Lines


class Rows(Dataset):
    """Rows of which those of kind B have targets of their own scale."""

    def __init__(self, length=400, every=40):
        self.length, self.every = length, every

    def __len__(self):
        return self.length

    def kind(self, index):
        return "B" if self.every and index % self.every == self.every - 1 else "A"

    def __getitem__(self, index):
        x = torch.randn(4, generator=torch.Generator().manual_seed(index))
        return index, x, x.sum() * (300.0 if self.kind(index) == "B" else 1.0)


class Stream(IterableDataset):
    def __iter__(self):
        rows = Rows()
        return (rows[index] for index in range(len(rows)))


class Loop:
    def __init__(self, data, folder=None, *, policy=None, describe=None, batch_size=4, **loader):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.console = Lines()
        self.guard = Guard(
            self.model,
            optimizer,
            policy=policy or Policy.refuse_spikes(report=False, level_change_after=100, max_vetoes_in_a_row=100),
            run_dir=folder,
            console=self.console,
            forward=lambda rows: (self.model(rows[1])[:, 0] - rows[2]).square().mean(),
            describe=describe,
        )
        self.loader = DataLoader(data, batch_size=batch_size, **loader)
        self.batches = self.guard.batches(self.loader)
        self.folder, self.seen = folder, []

    def epoch(self):
        for rows in self.batches:
            self.seen.append(rows[0].tolist())
            self.guard.step(self.guard.forward(rows))
        self.guard.flush()

    def events(self, kind):
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["event"] == kind]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_refused_batch_comes_back_once_when_it_is_calm(workers, tmp_path):
    loop = Loop(Rows(), tmp_path, num_workers=workers)
    loop.epoch()
    refused = [index for index, decision in enumerate(loop.guard.decisions) if decision.refused]
    returned = loop.events("returned")
    assert refused
    assert returned
    first = loop.seen[refused[0]]
    assert loop.seen.count(first) == 2
    assert loop.seen[refused[0] + 1] != first
    assert max(loop.seen.count(rows) for rows in loop.seen) == 2


def test_batches_of_a_stream_come_back_too():
    loop = Loop(Stream())
    loop.epoch()
    refused = [index for index, decision in enumerate(loop.guard.decisions) if decision.refused]
    assert loop.seen.count(loop.seen[refused[0]]) == 2


def test_what_is_left_at_the_end_of_the_data_comes_back_there():
    loop = Loop(Rows(length=402, every=200))  # one at a third of the way, one in the last batch but one
    loop.epoch()
    assert loop.seen.count([196, 197, 198, 199]) == 2
    assert loop.seen.count([396, 397, 398, 399]) == 1  # there was no calm after it


def test_rows_that_were_never_learned_from_are_told_at_the_end(tmp_path):
    loop = Loop(Rows(), tmp_path, describe=lambda rows: [(Rows().kind(i), f"row {i}") for i in rows[0].tolist()])
    loop.epoch()
    loop.guard.close()
    summary = loop.console.lines[-1]
    assert "rows of 400" in summary
    assert "were never trained on" in summary
    assert "batches with 'B' were refused" in summary
    (closed,) = loop.events("closed")
    assert closed["unlearned"]["row_count"] > 0
    assert closed["unlearned"]["of_rows"] == 400
    assert any("with 'B'" in sentence for sentence in closed["unlearned"]["groups"])


def test_a_kind_that_is_refused_more_often_than_not_is_told_while_it_happens(tmp_path):
    loop = Loop(Rows(), tmp_path, describe=lambda rows: [(Rows().kind(i), f"row {i}") for i in rows[0].tolist()])
    loop.epoch()
    warned = [line for line in loop.console.lines if "WARNING" in line and "hardly learns" in line]
    assert len(warned) == 1
    assert "'B'" in warned[0]
    (event,) = loop.events("group-refused")
    assert event["reason"].endswith("batches with 'B' were refused")


def test_by_default_the_same_kind_is_learned_from_and_nothing_is_missing():
    loop = Loop(
        Rows(),
        policy=Policy(report=False),
        describe=lambda rows: [(Rows().kind(i), f"row {i}") for i in rows[0].tolist()],
    )
    for _ in range(3):
        loop.epoch()
    loop.guard.close()
    assert not any(decision.refused for decision in loop.guard.decisions)
    assert "never learned" not in loop.console.lines[-1]
    assert "WARNING" not in loop.console.lines[-1]


def test_rows_that_are_learned_from_in_a_later_epoch_are_not_missing():
    loop = Loop(Rows(length=40, every=0), policy=Policy(report=False))
    for epoch in range(2):
        for number, rows in enumerate(loop.batches):
            bad = epoch == 0 and number == 3
            loop.guard.step(loop.guard.forward(rows) * (torch.nan if bad else 1.0))
        missing = loop.guard._loaders.unlearned().rows
        assert missing == ((12, 13, 14, 15) if epoch == 0 else ())


def test_a_batch_that_was_not_finite_does_not_come_back():
    loop = Loop(Rows(length=200, every=0), policy=Policy(report=False))
    for number, rows in enumerate(loop.batches):
        loop.seen.append(rows[0].tolist())
        loop.guard.step(loop.guard.forward(rows) * (torch.nan if number == 3 else 1.0))
    assert loop.seen.count([12, 13, 14, 15]) == 1


def test_a_description_without_groups_is_asked_for_once_only():
    asked = []

    def describe(rows):
        asked.append(rows)
        return [f"row {i}" for i in rows[0].tolist()]

    loop = Loop(Rows(length=80, every=0), policy=Policy(report=False), describe=describe)
    loop.epoch()
    assert len(asked) == 1


def test_a_description_that_fails_does_not_stop_the_training():
    loop = Loop(Rows(length=40, every=0), policy=Policy(report=False), describe=lambda rows: 1 / 0)
    loop.epoch()
    assert len(loop.seen) == 10


def test_a_run_that_resumes_still_gives_waiting_batches_back(tmp_path):
    policy = Policy.refuse_spikes(report=False)
    loop = Loop(Rows(), tmp_path, policy=policy)
    for rows in loop.batches:
        loop.seen.append(rows[0].tolist())
        loop.guard.step(loop.guard.forward(rows))
        if loop.guard.decisions[-1].refused:
            break
    passed = loop.seen[-1]
    loop.guard.checkpoint()
    loop.guard.close()
    again = Loop(Rows(), tmp_path, policy=policy)
    again.guard.resume()
    again.epoch()
    assert again.seen.count(passed) == 1


def test_a_ledger_remembers_what_became_of_each_batch():
    ledger = Ledger()
    ledger.pass_over((0, 3), items=(5, 6))
    ledger.pass_over((0, 4))
    assert ledger.next_return() == (0, 3)
    ledger.entry((0, 3)).came_back = True
    ledger.pass_over((0, 3))
    assert ledger.entry((0, 3)).fate is Fate.GIVEN_UP
    assert ledger.next_return() is None
    same = Ledger.from_state(json.loads(json.dumps(ledger.state_dict())))
    assert same.state_dict() == ledger.state_dict()


def test_what_is_no_ledger_is_refused():
    with pytest.raises(StateError, match="not a saved ledger"):
        Ledger.from_state({"version": 2, "batches": [["x"]]})
