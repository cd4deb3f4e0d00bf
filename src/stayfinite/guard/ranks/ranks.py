"""Many ranks, one decision: every rank judges the same numbers, so all act alike at the same step.

One small all-reduce per step, with a row for each rank (its loss, and whether its gradients were finite before
averaging) and the squared norm of each gradient. Each rank fills only its own row, so the sum is a gather, and a NaN
stays in its row: the event can name the bad rank. Pipeline stages hold different parameters; each fills in its own.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stayfinite.errors import ModelError
from stayfinite.guard.feeding.batches import Supply
from stayfinite.guard.ranks.local_gradients import LocalGradients
from stayfinite.guard.ranks.pipeline import Stages, Writers
from stayfinite.measure.checksum import checksum
from stayfinite.measure.reading import RANK_COLUMNS, Everywhere, Reading
from stayfinite.measure.roster import Roster
from stayfinite.state.shards import is_spread, local_part


@dataclass(frozen=True, slots=True)
class Census:
    """The same on every rank, except ``places``."""

    names: tuple[str, ...]
    """Names of all parameters, without duplicates."""
    holding: tuple[int, ...]
    """Number of ranks that hold each parameter or a shard of it."""
    places: tuple[int, ...]
    """Positions of this rank's roster in ``names``."""
    with_loss: tuple[int, ...] | None = None
    """Ranks that have a loss; None for all."""


def of_likes(roster: Roster, world: int) -> Census:
    """Census if all ranks hold the same parameters or shards of them."""
    number = len(roster.names)
    return Census(roster.names, (world,) * number, tuple(range(number)))


@dataclass(frozen=True, slots=True)
class Held:
    """What one rank holds, exchanged once."""

    names: tuple[str, ...]
    stages: tuple[int, ...]
    last: bool


def of_stages(held: Sequence[Held], own: Sequence[str]) -> Census:
    """Census if ranks hold different parameters.

    Arguments:
        own: names in this rank's current roster.

    Raises:
        ModelError: a parameter became trainable after the exchange.
    """
    # A rank may hold two copies of a tied parameter. Not a set: its order differs between ranks.
    counted = Counter(name for each in held for name in dict.fromkeys(each.names))
    at = {name: place for place, name in enumerate(counted)}
    if new := [name for name in own if name not in at]:
        raise ModelError(
            f"{len(new)} parameters became trainable after the guard was built, first {new[0]}",
            fix="unfreeze before building the guard, or close it and build a new one on every rank",
        )
    return Census(
        tuple(counted),
        tuple(counted.values()),
        tuple(at[name] for name in own),
        tuple(rank for rank, each in enumerate(held) if each.last),
    )


if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def holders_of(parameter: Tensor, holding: int) -> int:
    """Number of ranks that hold the same shard as this one.

    A plain tensor is complete on every rank that holds it. A DTensor is the same along each replicated mesh dimension;
    ranks outside the mesh have a mesh of their own with replicas.

    Arguments:
        holding: number of ranks that hold the tensor or a shard of it.
    """
    if not is_spread(parameter):
        return holding
    mesh = parameter.device_mesh
    holders = max(1, holding // mesh.size())
    for dimension in _replicated(parameter):
        holders *= mesh.size(dimension)
    return holders


def replicas_of(parameters: Sequence[Tensor]) -> Iterator[tuple[Any, list[int]]]:
    """Groups of ranks with the same shards, each with the positions of the shared tensors."""
    by_group: dict[int, tuple[Any, list[int]]] = {}
    for place, parameter in enumerate(parameters):
        if is_spread(parameter):
            for dimension in _replicated(parameter):
                group = parameter.device_mesh.get_group(dimension)
                by_group.setdefault(id(group), (group, []))[1].append(place)
    yield from by_group.values()


def settle_placement(parameter: Tensor) -> None:
    """Redistribute a gradient like its parameter, as the optimizer would before using it.

    Autograd may leave a partial sum on each rank, or the full gradient of a sharded parameter.
    """
    grad = parameter.grad
    if grad is None or not is_spread(grad) or not is_spread(parameter) or grad.placements == parameter.placements:
        return
    parameter.grad = grad.redistribute(placements=parameter.placements)


def _replicated(tensor: DTensor) -> Iterator[int]:
    """Mesh dimensions along which a tensor is replicated."""
    return (dimension for dimension, placement in enumerate(tensor.placements) if placement.is_replicate())


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Machine:
    """Host and device of one rank."""

    host: str
    device: str
    """With model name and start of its UUID, because `cuda:0` may be another card after a restart."""

    @classmethod
    def of(cls, device: torch.device) -> Machine:
        """Machine of this process."""
        return cls(platform.node() or "unknown host", _named(device))

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.host} {self.device}"


class Ranks:
    """All processes of one training, as in torch.distributed; a single process is the only rank.

    Arguments:
        model: the local model, or the local stages of a pipeline.
    """

    def __init__(self, model: nn.Module, roster: Roster) -> None:
        joined = dist.is_available() and dist.is_initialized()
        self.world = dist.get_world_size() if joined else 1
        self.rank = dist.get_rank() if joined else 0
        # The loader's state is on the host; a gloo group avoids a device sync.
        self._host_group: Any = dist.new_group(backend="gloo") if self.world > 1 else None
        self._stages = model if isinstance(model, Stages) else None
        watched = [model] if self._stages is None else self._stages.wrapped
        self._own = LocalGradients(watched) if self.world > 1 else None
        self._held: list[Held] = []
        if self._stages is not None:
            own = Held(_shared_names(self._stages, roster), self._stages.indices, self._stages.is_last)
            self._held = self.gather(own)
        self.machine = Machine.of(next((p.device for p in model.parameters()), torch.device("cpu")))
        self.machines: list[Machine] = self.gather(self.machine)
        """Machine of each rank."""
        self._known: tuple[Roster, Census] | None = None
        self._shared: tuple[Census, tuple[int, ...], tuple[Tensor, Tensor, Tensor | None]] | None = None

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and prints."""
        return self.rank == 0

    def combine(self, reading: Reading, roster: Roster) -> Reading:
        """Combine the reading with those of all ranks; the result is the same everywhere."""
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
            # Gradients of different stages are not averaged.
            bad = (~torch.isfinite(total)).to(wide)
        if bad is not None:
            rows[self.rank, 1] = bad
        if gradients.told:
            dist.all_reduce(rows)
            return replace(reading, loss=rows[:, 0].mean(), ranks=rows)
        squares = torch.zeros(len(census.names), dtype=wide, device=total.device)
        places, share, with_loss = self._shares(census, roster, gradients.indices, squares)
        squares[places] = gradients.norms.to(wide).square() * share
        message = torch.cat([rows.reshape(-1), squares])
        dist.all_reduce(message)
        rows, squares = message[: rows.numel()].view_as(rows), message[rows.numel() :]
        norms = squares[places].sqrt().to(gradients.norms.dtype)
        together = replace(gradients, norms=norms, total=squares.sum().sqrt().to(total.dtype))
        losses = rows[:, 0] if with_loss is None else rows[with_loss, 0]
        if self._stages is not None:
            # A bad loss makes all stages' gradients bad; blame the rank with the loss.
            rows[:, 1] = torch.where(torch.isfinite(losses).all(), rows[:, 1], 0)
        everywhere = None if self._stages is None else Everywhere(census.names, squares.sqrt())
        return replace(reading, loss=losses.mean(), gradients=together, ranks=rows, everywhere=everywhere)

    def census(self, roster: Roster) -> Census:
        """Parameters of all ranks."""
        if self._known is None or self._known[0] is not roster:
            found = (
                of_likes(roster, self.world)
                if self._stages is None
                else of_stages(self._held, _shared_names(self._stages, roster))
            )
            self._known = (roster, found)
        return self._known[1]

    @property
    def writers(self) -> Writers | None:
        """Which rank writes which checkpoint tensor; None if rank 0 holds all."""
        return Writers(self.rank, [each.stages for each in self._held]) if self._held else None

    def settle(self, roster: Roster) -> None:
        """Redistribute gradients whose placement differs from their parameters'; call it before they are read."""
        if self.world > 1:
            for parameter in roster.parameters:
                settle_placement(parameter)

    def stop_looking(self) -> None:
        """Stop checking this rank's own gradients."""
        if self._own is not None:
            self._own.stop()

    def agree(self, supply: Supply) -> Supply:
        """The worst supply over all ranks."""
        return Supply(self.highest(int(supply)))

    def highest(self, number: int) -> int:
        """Maximum over all ranks, on the host."""
        if self.world == 1:
            return number
        most = torch.tensor(number)
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=self._host_group)
        return int(most)

    def mean(self, numbers: list[float]) -> list[float]:
        """Means over all ranks, on the host."""
        if self.world == 1:
            return numbers
        summed = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(summed, group=self._host_group)
        found: list[float] = (summed / self.world).tolist()
        return found

    def gather(self, own: Item) -> list[Item]:
        """One item from each rank, by rank; on the host."""
        if self.world == 1:
            return [own]
        said: list[Any] = [None] * self.world
        dist.all_gather_object(said, own, group=self._host_group)
        return said

    def from_first(self, words: str) -> str:
        """Broadcast from rank 0."""
        if self.world == 1:
            return words
        said = [words]
        dist.broadcast_object_list(said, src=0, group=self._host_group)
        return said[0]

    def compare(self, roster: Roster) -> Tensor | None:
        """For each parameter, 1 if its bits differ between ranks that should agree; None in one process."""
        if self.world == 1:
            return None
        census = self.census(roster)
        checksums = (checksum(local_part(parameter)) for parameter in roster.parameters)
        sums = torch.stack([each.to(roster.device, non_blocking=True) for each in checksums])
        places = torch.tensor(census.places, device=sums.device)
        whole = [place for place, parameter in enumerate(roster.parameters) if not is_spread(parameter)]
        # A rank without the parameter contributes the lowest number, which never is the maximum.
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
        """Positions of the gradients in the census, this rank's share of each square, and the ranks with a loss.

        Cached on the device: copying them at every step would sync.
        """
        if self._shared is None or self._shared[0] is not census or self._shared[1] != indices:
            found = [census.places[index] for index in indices]
            # A gradient held by several ranks must count once.
            shares = [
                1.0 / holders_of(roster.parameters[index], census.holding[place])
                for index, place in zip(indices, found, strict=True)
            ]
            places = torch.tensor(found, dtype=torch.int64, device=like.device)
            with_loss = None if census.with_loss is None else torch.tensor(census.with_loss, device=like.device)
            share = torch.tensor(shares, dtype=like.dtype, device=like.device)
            self._shared = (census, indices, (places, share, with_loss))
        return self._shared[2]


def _shared_names(stages: Stages, roster: Roster) -> tuple[str, ...]:
    return tuple(map(stages.shared_name, roster.names, roster.parameters))


def _named(device: torch.device) -> str:
    if device.type != "cuda":
        return str(device)
    about = torch.cuda.get_device_properties(device)
    number = str(getattr(about, "uuid", ""))[:8]
    return f"cuda:{device.index or 0} ({about.name}{', ' if number else ''}{number})"
