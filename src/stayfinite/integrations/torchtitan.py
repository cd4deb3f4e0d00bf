"""torchtitan: one flag on the command line, or one line after the Trainer is built.

Example:
    ``--override.imports stayfinite.integrations.torchtitan.stayfinite``

    >>> from stayfinite.integrations.torchtitan import torchtitan_guard
    >>> trainer = config.build()
    >>> guard = torchtitan_guard(trainer)
    >>> trainer.train()
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import MissingExtra, UsageError
from stayfinite.integrations.combined import EngineOptimizers, Schedules
from stayfinite.integrations.framework_guard import FrameworkGuard
from stayfinite.integrations.places import DEFAULT, Default, agreed_place, place_of
from stayfinite.report.terminal import Console

with MissingExtra.unless("torchtitan", extra="torchtitan", what_for="stayfinite.integrations.torchtitan"):
    from torchtitan.components.metrics import MetricsProcessor
    from torchtitan.config.override import derive, override
    from torchtitan.distributed import utils as dist_utils
    from torchtitan.trainer import Trainer

__all__ = ["TorchtitanGuard", "stayfinite", "torchtitan_guard"]

MEMORY = "memory"
"""Folder of a run with the guard's memory, one file per torchtitan checkpoint."""


class TorchtitanGuard(FrameworkGuard):
    """Guards a torchtitan ``Trainer``: FSDP, HSDP, tensor parallel. Build it on every rank.

    ``trainer.train()`` is called as usual. At a bad step optimizers and schedules do nothing, and the Trainer continues
    instead of raising "Loss is not finite". If checkpoints are on, the guard's memory is saved beside the run and
    comes back with the checkpoint of the same step.

    Arguments:
        trainer: from ``config.build()``.
        policy: how a step is judged; ``Policy.watch()`` only observes.
        run_dir: where steps and events are written; by default ``stayfinite`` in ``dump_folder``. None for nowhere.
        console: where lines are printed; stderr by default.

    Raises:
        UsageError: not a Trainer, or its steps are captured as CUDA graphs together with their update.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        policy: Policy | None = None,
        run_dir: str | os.PathLike[str] | Default | None = DEFAULT,
        console: Console | None = None,
    ) -> None:
        if not isinstance(trainer, Trainer):
            raise UsageError(
                f"expected a torchtitan Trainer, not {type(trainer).__name__}", fix="torchtitan_guard(config.build())"
            )
        parts = trainer.model_parts
        model = parts[0] if len(parts) == 1 else nn.ModuleList(parts)
        config = trainer.config
        super().__init__(
            model=model, optimizer=EngineOptimizers.of(list(trainer.optimizers), model),
            scheduler=Schedules.of(list(trainer.lr_schedulers)), max_norm=config.training.max_norm,
            policy=policy or Policy(), console=console,
            run_dir=place_of(run_dir, lambda: agreed_place(config.dump_folder, again=config.checkpoint.enable)),
        )  # fmt: skip
        self._trainer = trainer
        self._stand_ins.put(trainer, "train_step", self._train_step)
        self._stand_ins.put(trainer, "forward_backward_step", self._forward_backward)
        self._stand_ins.put(trainer.optimizers, "step", self._step)
        self._stand_ins.put(trainer.lr_schedulers, "step", self._move)
        self._stand_ins.put(trainer.checkpointer, "save", self._save)
        self._stand_ins.put(trainer.checkpointer, "load", self._load)
        # After it the processes separate, and can no longer agree on anything.
        self._stand_ins.put(trainer, "close", self._close_with)

    # -- one step, in the order in which the Trainer goes through it -------------------------------------------------

    def _train_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._between_steps()
        # The Trainer calls it as a function of its module: it is replaced only during this Trainer's step.
        try:
            with StandIns().put(dist_utils, "clip_grad_norm_", self._clip):
                return original(*args, **kwargs)
        except RuntimeError as error:
            if not (self.refused and "Loss is not finite" in str(error)):
                raise
        finally:
            self._stepped = self._decision is not None

    def _forward_backward(self, original: Any, **kwargs: Any) -> Any:
        with self.driven.passing(kwargs.get("input_dict")):
            loss = original(**kwargs)
        self.driven.gather(_whole(loss, self._trainer))
        return loss

    def _clip(self, original: Any, parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
        parameters = list(parameters)
        norm: Tensor = original(parameters, max_norm, *args, **kwargs)
        self._decide(decision := self.driven.judge(norm=norm))
        if not decision.refused and decision.limit is not None:
            left = min(decision.signals.grad_norm, max_norm)
            for parameter in parameters if decision.limit < left else ():
                if parameter.grad is not None:
                    parameter.grad.mul_(decision.limit / left)
        return norm

    def _step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self.refused:
            return None
        with self.driven.stepping():
            return original(*args, **kwargs)

    def _move(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        return None if self.refused else original(*args, **kwargs)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _save(self, original: Any, curr_step: int, *args: Any, **kwargs: Any) -> Any:
        self._between_steps()
        saved = original(curr_step, *args, **kwargs)
        if saved and (file := self._memory_of(curr_step)) is not None:
            state = self.state_dict()
            if dist.get_rank() == 0:
                file.parent.mkdir(parents=True, exist_ok=True)
                (part := file.with_suffix(".part")).write_text(json.dumps(state), encoding="utf-8")
                part.rename(file)
        return saved

    def _load(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = original(*args, **kwargs)
        if loaded:
            file = self._memory_of(self._trainer.step)
            if file is not None and file.exists():
                self.load_state_dict(json.loads(file.read_text(encoding="utf-8")))
            else:
                self.driven.start_at(self._trainer.step)
        return loaded

    def _memory_of(self, step: int) -> Path | None:
        return None if self._run_dir is None else self._run_dir / MEMORY / f"step-{step}.json"


torchtitan_guard = TorchtitanGuard


def stayfinite(config: Any, *, run_dir: str | None = None, **policy: Any) -> Any:
    """For ``--override.imports``: the built Trainer gets a guard during ``train()``.

    Arguments:
        config: the metrics config, which only serves to find the Trainer.
        run_dir: where steps and events are written; by default ``stayfinite`` in ``dump_folder``.
        policy: fields of :class:`Policy`.
    """
    kind = type(config)
    settings = {"policy": Policy(**policy), "run_dir": DEFAULT if run_dir is None else run_dir}

    def build(self: Any, **kwargs: Any) -> Any:
        trainer = _caller()
        StandIns().put(trainer, "train", lambda train: _train_guarded(trainer, train, settings))
        return kind.build(self, **kwargs)

    return derive(config, make_dataclass(kind.__qualname__, [], bases=(kind,), namespace={"build": build}, slots=True))


override(target=MetricsProcessor.Config, description="refuse steps that are not finite")(stayfinite)


def _train_guarded(trainer: Any, train: Any, settings: dict[str, Any]) -> Any:
    with torchtitan_guard(trainer, **settings):
        return train()


def _caller() -> Any:
    """The Trainer under construction, further up the stack."""
    frame = sys._getframe(1)
    while not isinstance(found := frame.f_locals.get("self"), Trainer):
        if frame.f_back is None:
            raise UsageError("this override works only in a config for a torchtitan Trainer")
        frame = frame.f_back
    return found


def _whole(loss: Tensor, trainer: Any) -> Tensor:
    """The loss scaled so that its mean over ranks is that of all tokens; in a pipeline, that of the last stage."""
    dims = trainer.parallel_dims
    if isinstance(loss, DTensor):
        whole: Tensor = loss.full_tensor()
        return whole.detach()
    loss = loss.detach().reshape(()).to(torch.float64)
    if dims.pp_enabled:
        loss = loss if trainer.pp_has_last_stage else torch.zeros_like(loss)
        dist.all_reduce(loss, group=dims.get_mesh("pp").get_group())
    # Each rank has the sum over its own tokens, divided by the number of all.
    mesh = dims.get_optional_mesh("loss")
    return loss if mesh is None else loss * mesh.size()
