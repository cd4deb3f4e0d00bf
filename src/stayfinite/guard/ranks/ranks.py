"""Many ranks, one decision: every rank judges the same numbers, so every rank does the same thing at the same step.

One small all-reduce a step. It carries a row for each rank (its own loss, and whether its gradients were finite before
they were averaged) and the square of each gradient's norm. A sum over rows of which each rank fills its own is a gather
that knows no order, and a NaN stays in its own row: the event can name the rank that was bad. Stages of a pipeline hold
different parameters; each fills in its own of all that there are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stayfinite.guard.feeding.batches import Supply
from stayfinite.guard.ranks.census import Census, Held, of_likes, of_stages
from stayfinite.guard.ranks.local_gradients import LocalGradients
from stayfinite.guard.ranks.machines import Machine
from stayfinite.guard.ranks.meshes import holders_of, replicas_of, settle_placement
from stayfinite.guard.ranks.pipeline import Stages, Writers
from stayfinite.measure.reading import RANK_COLUMNS, Everywhere, Reading
from stayfinite.measure.roster import Roster
from stayfinite.state.shards import is_spread, local_part

Item = TypeVar("Item")


class Ranks:
    """All processes of one training, as torch.distributed knows them; a training in one process is its only rank.

    Arguments:
        model: what is trained here; the stages of a pipeline, where the ranks hold different parameters.
        roster: its parameters.
    """

    def __init__(self, model: nn.Module, roster: Roster) -> None:
        joined = dist.is_available() and dist.is_initialized()
        self.world = dist.get_world_size() if joined else 1
        self.rank = dist.get_rank() if joined else 0
        # The loader's state is known on the host; a group of its own spares the device a wait.
        self._host_group: Any = dist.new_group(backend="gloo") if self.world > 1 else None
        self._stages = model if isinstance(model, Stages) else None
        watched = [model] if self._stages is None else self._stages.wrapped
        self._own = LocalGradients(watched) if self.world > 1 else None
        self._told = [] if self._stages is None else self._tell_all(self._stages, roster)
        self.machine = Machine.of(next((p.device for p in model.parameters()), torch.device("cpu")))
        self.machines: list[Machine] = self.gather(self.machine)
        """Where each rank computes."""
        self._known: tuple[Roster, Census] | None = None
        self._shared: tuple[Census, tuple[int, ...], tuple[Tensor, Tensor, Tensor | None]] | None = None

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
        census = self.census(roster)
        rows = torch.zeros(self.world, RANK_COLUMNS, dtype=wide, device=total.device)
        rows[self.rank, 0] = reading.loss.to(total.device, non_blocking=True)
        bad = None if self._own is None else self._own.take()
        if bad is None and self._stages is not None:
            # Nobody averages a stage's gradients with those of another.
            bad = (~torch.isfinite(total)).to(wide)
        if bad is not None:
            rows[self.rank, 1] = bad
        if gradients.told:
            dist.all_reduce(rows)
            return replace(reading, loss=rows[:, 0].mean(), ranks=rows)
        squares = torch.zeros(len(census.names), dtype=wide, device=total.device)
        places, share, heard = self._shares(census, roster, gradients.indices, squares)
        squares[places] = gradients.norms.to(wide).square() * share
        message = torch.cat([rows.reshape(-1), squares])
        dist.all_reduce(message)
        rows, squares = message[: rows.numel()].view_as(rows), message[rows.numel() :]
        norms = squares[places].sqrt().to(gradients.norms.dtype)
        together = replace(gradients, norms=norms, total=squares.sum().sqrt().to(total.dtype))
        losses = rows[:, 0] if heard is None else rows[heard, 0]
        if self._stages is not None:
            # A bad loss makes the gradients of every stage bad; it began where the loss is.
            rows[:, 1] = torch.where(torch.isfinite(losses).all(), rows[:, 1], 0)
        everywhere = None if self._stages is None else Everywhere(census.names, squares.sqrt())
        return replace(reading, loss=losses.mean(), gradients=together, ranks=rows, everywhere=everywhere)

    def census(self, roster: Roster) -> Census:
        """The parameters of all ranks."""
        if self._known is None or self._known[0] is not roster:
            found = (
                of_likes(roster, self.world)
                if self._stages is None
                else of_stages(self._told, _shared_names(self._stages, roster))
            )
            self._known = (roster, found)
        return self._known[1]

    @property
    def writers(self) -> Writers | None:
        """Who writes which tensor of a checkpoint; None where rank 0 holds all of them."""
        return Writers(self.rank, [each.stages for each in self._told]) if self._told else None

    def settle(self, roster: Roster) -> None:
        """Before the gradients are read: those that are not laid out as their parameters are, are laid out so."""
        if self.world > 1:
            for parameter in roster.parameters:
                settle_placement(parameter)

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
        census = self.census(roster)
        sums = torch.stack([_checksum(local_part(parameter), roster.device) for parameter in roster.parameters])
        places = torch.tensor(census.places, device=sums.device)
        whole = [place for place, parameter in enumerate(roster.parameters) if not is_spread(parameter)]
        # Who does not hold a parameter says the lowest number there is, which decides no maximum.
        both = torch.full((2, len(census.names)), torch.iinfo(torch.int64).min, dtype=torch.int64, device=sums.device)
        both[:, places[whole]] = torch.stack([sums, -sums])[:, whole]
        dist.all_reduce(both, op=dist.ReduceOp.MAX)
        differing = (both[0] != -both[1]).double()
        for group, members in replicas_of(roster.parameters):
            own = sums[members]
            pair = torch.cat([own, -own])
            dist.all_reduce(pair, op=dist.ReduceOp.MAX, group=group)
            odd = (pair[: len(own)] != -pair[len(own) :]).double()
            differing[places[members]] = torch.maximum(differing[places[members]], odd)
        dist.all_reduce(differing, op=dist.ReduceOp.MAX)
        return differing

    def _shares(
        self, census: Census, roster: Roster, indices: tuple[int, ...], like: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Where the gradients stand in the census, how much of each one's square this rank contributes, who has a loss.

        They stay on the device: what is copied there at every step is waited for.
        """
        if self._shared is None or self._shared[0] is not census or self._shared[1] != indices:
            found = [census.places[index] for index in indices]
            # What several ranks hold must count once, not once a rank.
            shares = [
                1.0 / holders_of(roster.parameters[index], census.holding[place])
                for index, place in zip(indices, found, strict=True)
            ]
            places = torch.tensor(found, dtype=torch.int64, device=like.device)
            heard = None if census.heard is None else torch.tensor(census.heard, device=like.device)
            share = torch.tensor(shares, dtype=like.dtype, device=like.device)
            self._shared = (census, indices, (places, share, heard))
        return self._shared[2]

    def _tell_all(self, stages: Stages, roster: Roster) -> list[Held]:
        """Every rank tells all others, once, what it holds."""
        own = Held(_shared_names(stages, roster), stages.indices, stages.is_last)
        if self.world == 1:
            return [own]
        told: list[Any] = [None] * self.world
        dist.all_gather_object(told, own, group=self._host_group)
        return told


def _shared_names(stages: Stages, roster: Roster) -> tuple[str, ...]:
    return tuple(map(stages.shared_name, roster.names, roster.parameters))


def _checksum(parameter: Tensor, device: torch.device) -> Tensor:
    flat = parameter.detach().contiguous().reshape(-1)
    narrow = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    return flat.view(narrow).sum(dtype=torch.int64).to(device, non_blocking=True)
