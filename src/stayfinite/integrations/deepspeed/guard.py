"""The guard of an engine: hooks, decisions, actions, and its memory in checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from stayfinite.core.decision import Decision
from stayfinite.core.policy import Policy
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import MissingExtra
from stayfinite.integrations.combined import EngineOptimizers
from stayfinite.integrations.framework_guard import PassGuard, explaining, warn_of_unseen_loss
from stayfinite.report.terminal import Console
from stayfinite.state.parts import finite_flag, is_finite, stateful

with MissingExtra.unless("deepspeed", extra="deepspeed", what_for="stayfinite.integrations.deepspeed"):
    import deepspeed as _  # noqa: F401

from stayfinite.integrations.deepspeed.asking import asking_for, scaler_of
from stayfinite.integrations.deepspeed.masters import (
    check_engine,
    inner_optimizer,
    keeps_weights_apart,
    tensors_of,
)

MARK = "_stayfinite"
"""Attribute of an engine that holds its guard."""

MEMORY = "stayfinite"
"""Key of the guard's memory in a checkpoint's client state."""


class StayFinite(PassGuard):
    """Guards the steps of a DeepSpeed engine.

    ``engine(...)``, ``engine.backward(loss)`` and ``engine.step()`` are called as usual. A bad step is skipped on all
    ranks as the engine itself skips an overflow: weights, moments and schedule do not change, and
    ``engine.skipped_steps`` counts it. The loss scale is lowered for overflows only. An unusual finite step is limited
    by the engine's own clipping.

    Arguments:
        engine: the first result of ``deepspeed.initialize``.
        policy: how a step is judged; ``Policy.watch()`` only observes.
        run_dir: where steps, events and incidents are written; None for nowhere.
        forward: ``forward(batch) -> loss``, called as ``guard.forward(batch)``: allows a bad step to be explained.
            Not needed for a model that returns its loss, as in transformers.
        explain: whether the first bad step of each kind is run again at once to find its cause. Not with ZeRO-3.
        console: where lines are printed; stderr by default.

    Raises:
        UsageError: this engine's steps cannot be refused; the message says why.
    """

    def __init__(
        self,
        engine: Any,
        *,
        policy: Policy | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        forward: Callable[[Any], Tensor] | None = None,
        explain: bool = True,
        console: Console | None = None,
    ) -> None:
        check_engine(engine)
        if (before := vars(engine).get(MARK)) is not None:
            # A guard attached from outside is replaced by the script's own.
            before.close()
        self._engine, self._warned = engine, False
        inner = inner_optimizer(engine)
        assert inner is not None, "check_engine has looked"
        self._inner = inner
        masters: Any = inner if engine.optimizer is inner else EngineOptimizers.of([inner], engine.module)
        clipping = float(engine.gradient_clipping() or 0)
        super().__init__(
            engine, forward, model=engine.module, optimizer=masters, scheduler=stateful(engine.lr_scheduler),
            scaler=scaler_of(engine), max_norm=clipping if clipping > 0 else None,
            policy=_fitting(engine, policy, explain=explain),
            run_dir=None if run_dir is None else Path(run_dir), console=console,
        )  # fmt: skip
        self._asking = asking_for(engine, self._ask, self._stand_ins)
        put = self._stand_ins.put
        put(engine.optimizer, "step", self._optimizer_step)
        put(engine, "backward", self._backward)
        put(engine, "_take_model_step", self._take_model_step)
        put(engine, "step", self._step)
        put(engine, "save_checkpoint", self._save_checkpoint)
        put(engine, "load_checkpoint", self._load_checkpoint)
        vars(engine)[MARK] = self

    # -- what the loop may call --------------------------------------------------------------------------------------

    @property
    def decision(self) -> Decision | None:
        """Decision on the last step; None if no loss was known."""
        return self._decision

    # -- one step, in the order in which the engine goes through it --------------------------------------------------

    def _backward(self, original: Any, loss: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(loss, *args, **kwargs)
        share = self._engine.gradient_accumulation_steps() if kwargs.get("scale_wrt_gas", True) else 1
        self.driven.gather(loss.detach().mean() / share)
        return result

    def _take_model_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._decision = None
        self._asking.prepare()
        return original(*args, **kwargs)

    def _optimizer_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        with self.driven.stepping():
            return self._asking.step(original, *args, **kwargs)

    def _step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        # By now the engine has advanced its schedule and freed the gradients.
        if self.driven.judged:
            self.driven.settle()
        return result

    def _ask(self, **measured: Any) -> Decision | None:
        if not self.driven.gathered:
            if not self._warned:
                self._warned = True
                warn_of_unseen_loss("engine.backward(loss)")
            return None
        self._decide(decision := self.driven.judge(**measured))
        return decision

    # -- checkpoints, which stay the engine's own --------------------------------------------------------------------

    def _save_checkpoint(
        self, original: Any, save_dir: Any, tag: Any = None, client_state: Any = None, save_latest: bool = True,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        poisoned = self._poisoned()
        good = not self.driven.any_rank(bool(poisoned))
        client_state = {**(client_state or {}), MEMORY: self.state_dict()}
        # A poisoned checkpoint is written as requested, but `latest` keeps naming the last good one.
        saved = original(save_dir, tag, client_state, save_latest and good, **kwargs)
        name = str(tag or f"global_step{self._engine.global_steps}")
        if good:
            self.driven.record("checkpoint", by="DeepSpeed", name=name)
        else:
            where = ", ".join(poisoned[:3]) or "another rank"
            self.driven.record(
                "checkpoint-failed",
                f"checkpoint {name} holds NaN or inf ({where}): `latest` still points to the one before",
                name=name,
                reason="it holds NaN or inf",
                poisoned=poisoned,
            )
        return saved

    def _load_checkpoint(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        path, client_state = original(*args, **kwargs)
        memory = client_state.pop(MEMORY, None) if isinstance(client_state, dict) else None
        if memory is not None and not kwargs.get("load_module_only", False):
            self.load_state_dict(memory)
        return path, client_state

    def _poisoned(self) -> list[str]:
        """Names of this rank's tensors with NaN or infinity."""
        named = list(tensors_of(self._engine, self._inner))
        if all(bool(flag) for flag in finite_flag(tensor for _, tensor in named)):
            return []
        return [name for name, tensor in named if not is_finite(tensor)]

    # -- a bad step once more ----------------------------------------------------------------------------------------

    def _bare(self) -> StandIns:
        """Context in which the engine passes calls to its module, without its own hooks on the loss."""
        engine = self._engine

        def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
            if engine.fp16_auto_cast():
                args, kwargs = engine._cast_inputs_half(args), engine._cast_inputs_half(kwargs)
            return engine.module(*args, **kwargs)

        return StandIns().put(engine, "forward", forward)

    def _leave(self) -> None:
        del vars(self._engine)[MARK]
        self._asking.stop()


deepspeed_guard = StayFinite


def _fitting(engine: Any, policy: Policy | None, *, explain: bool) -> Policy:
    policy = explaining(policy, explain=explain)
    # A rank has only a shard of the weights, which cannot be restored from outside the engine.
    return replace(policy, snapshots=False) if keeps_weights_apart(engine) else policy


class AcceleratedEngine(StayFinite):
    """Guard of an engine in a loop that uses accelerate.

    Arguments:
        accelerator: its ``log`` gets the guard's figures, its ``end_training`` closes the guard.
        engine: the model as returned by ``prepare``.
        optimizer: as returned by ``prepare``; it reports skipped steps to the loop.
        settings: those of :class:`StayFinite`.
    """

    def __init__(self, accelerator: Any, engine: Any, optimizer: Any, **settings: Any) -> None:
        super().__init__(engine, **settings)
        tell_of_skips(optimizer)
        self._stand_ins.put(accelerator, "log", self._log)
        self._stand_ins.put(accelerator, "end_training", self._close_with)

    def _log(self, original: Any, values: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return original({**self.figures(), **values}, *args, **kwargs)


def tell_of_skips(optimizer: Any) -> None:
    """Make accelerate's wrapper ask its optimizer whether a step was skipped; it checks for support only once."""
    if hasattr(optimizer, "__has_overflow__") and hasattr(optimizer.optimizer, "overflow"):
        optimizer.__has_overflow__ = True
