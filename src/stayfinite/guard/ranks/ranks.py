"""Many ranks, one decision: every rank judges the same numbers, so every rank does the same thing at the same step.

One small all-reduce a step. It carries a row for each rank (its own loss, and whether its gradients were finite before
they were averaged) and the square of each gradient's norm. A sum over rows of which each rank fills its own is a gather
that knows no order, and a NaN stays in its own row: the event can name the rank that was bad.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stayfinite.guard.feeding.batches import Supply
from stayfinite.guard.ranks.local_gradients import LocalGradients
from stayfinite.guard.ranks.machines import Machine
from stayfinite.guard.ranks.meshes import holders_of, replicas_of, settle_partial
from stayfinite.measure.reading import RANK_COLUMNS, Reading
from stayfinite.measure.roster import Roster
from stayfinite.state.shards import local_part

Item = TypeVar("Item")


class Ranks:
    """All processes of one training, as torch.distributed knows them; a training in one process is its only rank."""

    def __init__(self, model: nn.Module) -> None:
        joined = dist.is_available() and dist.is_initialized()
        self.world = dist.get_world_size() if joined else 1
        self.rank = dist.get_rank() if joined else 0
        # The loader's state is known on the host; a group of its own spares the device a wait.
        self._host_group: Any = dist.new_group(backend="gloo") if self.world > 1 else None
        self._own = LocalGradients(model) if self.world > 1 else None
        self.machine = Machine.of(next((p.device for p in model.parameters()), torch.device("cpu")))
        self.machines: list[Machine] = self.gather(self.machine)
        """Where each rank computes."""
        self._known: tuple[Roster, tuple[int, ...], Tensor, Tensor] | None = None

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    def combine(self, reading: Reading, roster: Roster) -> Reading:
        """The reading of all ranks together, the same on every one of them."""
        if self.world == 1:
            return reading
        gradients = reading.gradients
        total = gradients.total
        wide = torch.float64 if total.device.type != "mps" else torch.float32
        rows = torch.zeros(self.world, RANK_COLUMNS, dtype=wide, device=total.device)
        rows[self.rank, 0] = reading.loss.to(total.device, non_blocking=True)
        if self._own is not None and (bad := self._own.take()) is not None:
            rows[self.rank, 1] = bad
        if gradients.told:
            dist.all_reduce(rows)
            return replace(reading, loss=rows[:, 0].mean(), ranks=rows)
        squares = torch.zeros(len(roster.parameters), dtype=wide, device=total.device)
        places, share = self._shares(roster, gradients.indices, squares)
        squares[places] = gradients.norms.to(wide).square() * share
        message = torch.cat([rows.reshape(-1), squares])
        dist.all_reduce(message)
        rows, squares = message[: rows.numel()].view_as(rows), message[rows.numel() :]
        norms = squares[places].sqrt().to(gradients.norms.dtype)
        together = replace(gradients, norms=norms, total=squares.sum().sqrt().to(total.dtype))
        return replace(reading, loss=rows[:, 0].mean(), gradients=together, ranks=rows)

    def settle(self, roster: Roster) -> None:
        """Before the gradients are read: those of which each rank holds a summand are added up."""
        if self.world > 1:
            for parameter in roster.parameters:
                settle_partial(parameter)

    def stop_looking(self) -> None:
        """The guard is done: its look at this rank's own gradients ends."""
        if self._own is not None:
            self._own.stop()

    def agree(self, supply: Supply) -> Supply:
        """The worst of all ranks' supplies."""
        return Supply(self.highest(int(supply)))

    def highest(self, number: int) -> int:
        """The highest of all ranks' numbers, on the host."""
        if self.world == 1:
            return number
        most = torch.tensor(number)
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=self._host_group)
        return int(most)

    def mean(self, numbers: list[float]) -> list[float]:
        """The means of all ranks' numbers, on the host."""
        if self.world == 1:
            return numbers
        summed = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(summed, group=self._host_group)
        found: list[float] = (summed / self.world).tolist()
        return found

    def gather(self, own: Item) -> list[Item]:
        """What each rank has to say, by rank; on the host."""
        if self.world == 1:
            return [own]
        said: list[Any] = [None] * self.world
        dist.all_gather_object(said, own, group=self._host_group)
        return said

    def from_first(self, words: str) -> str:
        """What the first rank says."""
        if self.world == 1:
            return words
        said = [words]
        dist.broadcast_object_list(said, src=0, group=self._host_group)
        return said[0]

    def compare(self, roster: Roster) -> Tensor | None:
        """For each parameter 1 if its bits differ between ranks that should hold the same; None in one process."""
        if self.world == 1:
            return None
        parts = [local_part(parameter) for parameter in roster.parameters]
        sums = torch.stack([_checksum(part, roster.device) for part in parts])
        differing = torch.zeros(len(sums), dtype=torch.float64, device=sums.device)
        for group, places in replicas_of(roster.parameters):
            own = sums[places]
            both = torch.cat([own, -own])
            dist.all_reduce(both, op=dist.ReduceOp.MAX, group=group)
            differing[places] = torch.maximum(differing[places], (both[: len(own)] != -both[len(own) :]).double())
        dist.all_reduce(differing, op=dist.ReduceOp.MAX)
        return differing

    def _shares(self, roster: Roster, indices: tuple[int, ...], like: Tensor) -> tuple[Tensor, Tensor]:
        """Where the gradients stand in the roster, and how much of each one's square this rank contributes."""
        if self._known is None or self._known[0] is not roster or self._known[1] != indices:
            # What several ranks hold must count once, not once a rank.
            shares = [1.0 / holders_of(roster.parameters[index], self.world) for index in indices]
            places = torch.tensor(indices, dtype=torch.int64, device=like.device)
            self._known = (roster, indices, places, torch.tensor(shares, dtype=like.dtype, device=like.device))
        return self._known[2], self._known[3]


def _checksum(parameter: Tensor, device: torch.device) -> Tensor:
    flat = parameter.detach().contiguous().reshape(-1)
    narrow = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    return flat.view(narrow).sum(dtype=torch.int64).to(device, non_blocking=True)
