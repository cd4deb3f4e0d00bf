"""Early warnings in sampled steps, and post-training failures in the signals of each; no step is refused for one."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.surroundings import is_compiled
from stayfinite.core.early_signs import UPDATE, EarlySigns
from stayfinite.core.post_training.signs import Sign
from stayfinite.core.post_training.watch import PostTraining
from stayfinite.core.signals import Signals
from stayfinite.guard.telling.recorder import SIGN, Recorder
from stayfinite.measure.forward_look import ForwardLook, Key
from stayfinite.measure.mailbox import Mailbox
from stayfinite.measure.sample import Sample
from stayfinite.state.parts import unwrapped


class EarlyWatch:
    """Hooks the forward passes of sampled steps and judges the measurements.

    Arguments:
        first: whether this is rank 0; other ranks do nothing.
    """

    def __init__(self, model: nn.Module, recorder: Recorder, due: Callable[[int], bool], *, first: bool) -> None:
        self._model, self._recorder, self._due = model, recorder, due
        self._on = first
        self._look: ForwardLook | None = None
        self._mail: Mailbox[tuple[int, tuple[Key, ...]]] = Mailbox()
        self._signs = EarlySigns()

    def expect(self, step: int) -> None:
        """Hook the forward passes of this step if it is sampled."""
        self.forget()
        # Hooks inside compiled code would trigger a recompile.
        if self._on and self._due(step) and not is_compiled(self._model):
            self._look = ForwardLook(unwrapped(self._model))

    def forget(self) -> None:
        """Remove the hooks, after the step or its failure."""
        if self._look is not None:
            self._look.finish()
        self._look = None

    def post(self, sample: Sample) -> None:
        """Send the measurements of a sampled step to the host."""
        if not self._on:
            return
        keys, seen = ((), None) if self._look is None else self._look.finish()
        self._look = None
        ratios: Tensor = sample.table[:, -1]
        values = ratios if seen is None else torch.cat([seen.to(ratios.device, ratios.dtype), ratios])
        self._mail.post((sample.step, keys), values)

    def collect(self, *, wait: bool = False) -> None:
        """Judge the measurements that arrived, and report signs."""
        for (step, keys), values in self._mail.collect(wait=wait):
            signals = dict(zip(keys, values, strict=False))
            # All ratios are 0 for a refused step, and not finite for an all-zero weight.
            moved = [ratio for ratio in values[len(keys) :] if 0 < ratio < 1e6]
            if moved:
                signals[UPDATE, ""] = median(moved)
            for sign in self._signs.take(step, signals):
                details = {"reason": f"{sign}", **asdict(sign)}
                del details["step"]
                self._recorder.announce("early-sign", step, f"step {step}: {sign}", **details)


class PostTrainingWatch:
    """Judges the signals of each step and reports signs; does nothing without signals.

    Arguments:
        first: whether this is rank 0; other ranks do nothing.
    """

    def __init__(self, recorder: Recorder, *, first: bool) -> None:
        self._recorder, self._on = recorder, first
        self._judge = PostTraining()
        self.steered: dict[str, Any] = {}
        """Actions taken on signs, as plain data; kept here by `rl.Steering` so they are saved."""

    @property
    def standing(self) -> frozenset[str]:
        """Causes shown by the last signals, on rank 0."""
        return self._judge.standing

    def state_dict(self) -> dict[str, Any]:
        """Signals so far, in bounded size, and the actions taken."""
        return {"judge": self._judge.to_json(), "steered": dict(self.steered)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; an older, empty one starts over.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: not such a state.
        """
        self._judge.load(state.get("judge", {}))
        # In place: the steering keeps a reference.
        self.steered.clear()
        self.steered.update(state.get("steered", {}))

    def take(self, signals: Signals) -> None:
        """Judge the signals of a decided step."""
        if not self._on or not signals.named:
            return
        for sign in self._judge.take(signals.step, signals.named):
            self.tell(sign)

    def tell(self, sign: Sign) -> None:
        """Report a sign, found here or by the caller."""
        self._recorder.announce(
            SIGN,
            sign.step,
            f"step {sign.step}: {sign.cause}: {sign.text}. Training continues.\n  Fix: {sign.advice}",
            cause=sign.cause,
            reason=sign.text,
            signal=sign.signal,
            value=sign.value,
            usual=sign.usual,
            variant=sign.variant,
            fix=sign.advice,
        )
