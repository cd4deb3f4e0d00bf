"""Pipeline stages on different ranks, as in ``torch.distributed.pipelining``.

Each rank holds other parameters, the schedule runs backward, and only the last stage has a loss.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from stayfinite.errors import LossError, ModelError, OrderError, UsageError
from stayfinite.state.parts import unwrapped
from stayfinite.state.shards import full_value

_STAGE = re.compile(r"(?:model|optimizer\.state)\.(stage\d+)\.")


class Stages(nn.Module):
    """This rank's stages as one module; its parameters are named ``stage0.…``, ``stage2.…``.

    Arguments:
        stages: ``PipelineStage`` objects, or anything with ``submod``, ``stage_index`` and ``num_stages``.
        tied: parameters that other stages hold too, by a name shared with them.
    """

    def __init__(self, stages: Sequence[Any], tied: Mapping[str, nn.Parameter]) -> None:
        super().__init__()
        self.indices = tuple(stage.stage_index for stage in stages)
        self.number = max(stage.num_stages for stage in stages)
        self.wrapped = [cast(nn.Module, stage.submod) for stage in stages]
        for index, submod in zip(self.indices, self.wrapped, strict=True):
            self.add_module(f"stage{index}", unwrapped(submod))
        own = set(self.parameters())
        for name, parameter in tied.items():
            if parameter not in own:
                raise ModelError(
                    f"tied parameter {name!r} is in none of this rank's stages ({self.in_words()})",
                    fix="name it only where a stage holds a copy: tied={'embedding': stage.submod.embed.weight}",
                )
        self._tied = {parameter: name for name, parameter in tied.items()}

    def __setattr__(self, name: str, value: Any) -> None:
        # The wrapped stages hold the same parameters under other names.
        if name == "wrapped":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def is_last(self) -> bool:
        """Whether the loss is computed here."""
        return self.number - 1 in self.indices

    def shared_name(self, name: str, parameter: nn.Parameter) -> str:
        """Name of the parameter on every rank that holds it."""
        return self._tied.get(parameter, name)

    def loss_of(self, given: object, parts: object = None) -> Tensor:
        """Mean of the microbatch losses; 0 on a rank without the last stage.

        Raises:
            OrderError: this rank has the last stage, but there is no loss.
            LossError: not a list of scalar losses.
            UsageError: there are parts, which the writing rank does not have.
        """
        if parts:
            raise UsageError(
                "guard.step(parts=...) does not work in a pipeline: only the last stage has them",
                fix="leave parts out, and log them yourself on the last stage",
            )
        listed: list[Any] = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
        losses: list[Tensor] = []
        for loss in listed:
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                what = f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
                raise LossError(
                    f"expected the losses of the microbatches, each a scalar tensor, not {what}",
                    fix="losses = []; schedule.step(..., target=target, losses=losses); guard.step(losses)",
                )
            losses.append(loss)
        if not self.is_last:
            return torch.zeros((), device=next(self.parameters()).device)
        if not losses:
            raise OrderError(
                "guard.step() without a loss on the rank that has the last stage",
                fix="losses = []; schedule.step(..., target=target, losses=losses); guard.step(losses)",
            )
        wide = torch.float32 if losses[0].device.type == "mps" else torch.float64
        return torch.stack([full_value(loss).reshape(()).to(wide) for loss in losses]).mean()

    def in_words(self) -> str:
        """For ``guard.describe()``."""
        return f"{'stage' if len(self.indices) == 1 else 'stages'} {', '.join(map(str, self.indices))} of {self.number}"


def as_stages(model: object, tied: Mapping[str, nn.Parameter] | None) -> Stages | None:
    """Wrap pipeline stages given instead of a module; None otherwise.

    Raises:
        UsageError: modules without their stages, or tied parameters without a pipeline.
    """
    listed = list(model) if isinstance(model, Iterable) and not isinstance(model, nn.Module) else [model]
    if listed and all(_is_stage(each) for each in listed):
        return Stages(listed, tied or {})
    if isinstance(model, list | tuple) and any(isinstance(each, nn.Module) for each in listed):
        raise ModelError(
            "a list of modules does not say which pipeline stages they are",
            fix="pass the PipelineStage objects: Guard([stage0, stage2], optimizer); or one nn.Module",
        )
    if tied:
        raise UsageError(
            "tied=... is for pipeline stages only",
            fix="pass PipelineStage objects as the model, or leave tied out: a module's own tied weights count once",
        )
    return None


def check_pipeline(stages: Stages | None, **parts: object) -> None:
    """Raise UsageError for what a guard cannot do in a pipeline."""
    if stages is None:
        return
    fixes = {
        "scaler": "train in bf16, which needs no scaler; scales of different stages would drift apart",
        "forward": "remove it: the schedule runs forward and backward. Bad steps are refused but not re-run",
        "ema": "remove it, and average each stage's weights yourself after guard.step()",
    }
    for name, part in parts.items():
        if part is not None:
            raise UsageError(f"{name}=... does not work with pipeline stages", fix=fixes[name])


class Writers:
    """Which rank writes a tensor to a checkpoint: the first with its stage, rank 0 for the rest."""

    def __init__(self, rank: int, held: Sequence[Sequence[int]]) -> None:
        first: dict[str, int] = {}
        for holder, indices in enumerate(held):
            for index in indices:
                first.setdefault(f"stage{index}", holder)
        self._rank, self._first = rank, first

    def __call__(self, name: str) -> bool:
        """Whether this rank writes the tensor of this name."""
        found = _STAGE.match(name)
        return self._rank == (0 if found is None else self._first[found[1]])


def _is_stage(each: object) -> bool:
    return isinstance(getattr(each, "submod", None), nn.Module) and hasattr(each, "stage_index")
