"""The guard of a training that a framework drives.

A framework runs forward and backward, clips, steps the optimizer, moves the schedule and zeroes the gradients on its
own. It cannot be told to call ``guard.step(loss)``; but it can be asked to wait at the right moments::

    with driven.passing(batch) as passed:      # a forward pass; several of them under accumulation
        loss = the framework's forward pass
        passed(loss)
    driven.gather(loss)                        # its backward pass; the loss is the share that goes into the step
    decision = driven.judge()                  # gradients are complete, unscaled, and not yet clipped
    if not decision.refused:
        the framework clips
        with driven.stepping():                # a cut of the learning rate holds in here
            the framework's optimizer.step()
        the framework moves its schedule
    driven.settle()                            # records, incidents, the rungs of the ladder, snapshots
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from stayfinite.core.decision import Decision
from stayfinite.core.post_training.signs import Sign
from stayfinite.core.stalls import Phase
from stayfinite.errors import OrderError, UsageError
from stayfinite.guard.checks import check_max_norm
from stayfinite.guard.gates.gates import JudgedStep
from stayfinite.guard.guard import Guard
from stayfinite.guard.incidents.passes import Pass
from stayfinite.measure.gradients import HALF, clip_gradients
from stayfinite.measure.reading import Reading
from stayfinite.measure.sample import Sampler
from stayfinite.state.shards import full_value

NOT_HERE = "a framework drives this training: it runs backward, clips and steps itself"


class DrivenGuard(Guard):
    """Guards a loop that belongs to a framework. Built like a :class:`Guard`.

    ``scheduler`` and ``scaler`` are put back by a rollback and are otherwise left to the framework; ``max_norm`` is
    for the record. ``forward`` is only called to explain a bad step. The framework writes the checkpoints.
    """

    _driven: ClassVar[bool] = True

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._reading: Reading | None = None
        self._heard: list[JudgedStep] = []
        self._sampler: Sampler | None = None
        super().__init__(*args, **settings)

    # -- the framework's loop ----------------------------------------------------------------------------------------

    @contextmanager
    def passing(self, batch: Any) -> Iterator[Callable[[Tensor], None]]:
        """Within, the framework runs a forward pass on this batch, and calls what it is given with the loss.

        What is needed to run it again is remembered until the step is settled. Enter it inside of the autocast that
        the pass runs in, where there is one.
        """
        self._life.check_open()
        self._setup.buffers.begin()
        self._collector.see(batch)
        if torch.is_grad_enabled():
            self._groups.see(batch)
            self._replays.expect(self._step + 1, self._setup.roster)
        began = self._passes.begin(batch)
        try:
            yield _ender(self, began)
        except BaseException:
            self._passes.take_back(began)
            raise

    def lead(self, loss: Tensor) -> None:
        """Backward is about to begin at this loss, which is not the one that :meth:`passing` is told."""
        self._passes.lead(None, loss)

    def gather(self, loss: Tensor) -> None:
        """Backward is run on this loss, a share of the step's."""
        self._life.check_open()
        whole = full_value(loss)
        self._collector.add(whole, {})
        self._passes.trained(whole)

    def hear(self, signals: Mapping[str, Tensor | float]) -> None:
        """Further numbers of the step, as :meth:`Guard.step` takes them; before :meth:`judge`."""
        self._hear(signals)

    def judge(self, *, unscale: bool = False, norm: Tensor | None = None, scale: float | None = None) -> Decision:
        """Whether the step may be taken. Asked again before :meth:`settle`, the answer is the same.

        Gradients, optimizer and schedule are not touched; buffers that the forward pass has changed are put back where
        the step is refused.

        Arguments:
            unscale: have the guard unscale the gradients first, where there is an fp16 scaler.
            norm: of the gradients of all ranks, unscaled, from an engine that keeps them. No gradient is read then, and
                an unusual step is left to the engine to limit: clip it to ``decision.limit``.
            scale: the loss scale of an engine that scales fp16 losses by itself.
        """
        self._life.check_open()
        if self._heard:
            return self._heard[0].judgement.decision
        if self._collector.loss is None:
            raise OrderError("driven.judge() called before driven.gather(loss)", fix="call driven.gather(loss) first")
        self._reading, self._sampler, self._heard = self._weigh(
            self._collector.loss, unscale=unscale, norm=norm, scale=scale
        )
        return self._heard[0].judgement.decision

    @property
    def gathered(self) -> bool:
        """Whether there is a loss to judge a step by."""
        return self._collector.loss is not None

    @property
    def judged(self) -> bool:
        """Whether a step was judged and is not settled yet."""
        return bool(self._heard)

    @property
    def grad_norm(self) -> Tensor:
        """Norm of the gradients of the step that was judged, before clipping."""
        assert self._reading is not None, "allowed only between judge() and settle()"
        return self._reading.gradients.total

    def clips_alike(self, parameters: Iterable[Tensor]) -> bool:
        """Whether :meth:`clip` does to the last bit what ``torch.nn.utils.clip_grad_norm_`` would do to these."""
        roster = self._setup.roster
        # In their order, too: norms are summed in it, and a sum in another order may end in another bit.
        asked = [id(p) for p in parameters if p.grad is not None]
        return (
            self._ranks.world == 1
            and asked == [id(p) for p in roster.parameters if p.grad is not None]
            and not any(dtype in HALF for _, dtype in roster.places)
            and all(p.grad is None or (type(p.grad) is Tensor and not p.grad.is_sparse) for p in roster.parameters)
        )

    def clips_at(self, max_norm: float) -> None:
        """The framework clips to this norm, as it turns out: for the record, and for what a step is called."""
        if self._max_norm != max_norm and 0 < max_norm < math.inf:
            self._max_norm = self._judge.max_norm = self._setup.max_norm = check_max_norm(max_norm)

    def clip(self, max_norm: float) -> Tensor:
        """Clip with the norms that were just measured, which spares a second pass over the gradients."""
        assert self._reading is not None, "allowed only between judge() and settle()"
        gradients = self._reading.gradients
        limit = self._heard[0].judgement.decision.limit
        # Those of an unusual step were limited when it was judged.
        limited = gradients if limit is None else replace(gradients, total=gradients.total.clamp(max=limit))
        clip_gradients(limited, max_norm)
        return gradients.total

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Within, the framework's optimizer takes the step, at the learning rate that is in force."""
        with self._setup.cut.applied(self._optimizer):
            yield
        if self._setup.alarm is not None or self._judge.policy.mode != "watch":
            self._setup.buffers.keep()

    def settle(self) -> None:
        """The framework is done with the step, whether it was taken or not: act on it.

        Raises:
            TrainingDiverged: as :meth:`Guard.step`.
        """
        self._life.check_open()
        heard, sampler = self._heard, self._sampler
        if sampler is not None:
            self._tell_sample(sampler.finish())
        self.abandon()
        if heard:
            self._take_note(heard)
            self._between_steps()
            self._progress.at(Phase.OUTSIDE, self._step + 1)

    def abandon(self) -> None:
        """Forget what was gathered for the step."""
        self._forget_gathered()
        self._reading, self._heard, self._sampler = None, [], None

    @property
    def rate_factor(self) -> float:
        """What a cut multiplies the learning rate by at present; 1 without one."""
        return self._setup.cut.factor

    @property
    def precision(self) -> str | None:
        """The precision that the ladder has arrived at; None where the policy names none to start from."""
        return self._precision.current

    @property
    def causes(self) -> dict[str, int]:
        """What was found to be the matter so far, by cause, with the step at which it first was."""
        return dict(self._recorder.causes)

    @property
    def unusual(self) -> dict[str, int]:
        """Finite steps that were bounded, and rollbacks because of what followed one."""
        return self._recorder.unusual

    def any_rank(self, here: bool) -> bool:
        """Whether it is so on any rank; every rank has to ask."""
        return bool(self._ranks.highest(int(here)))

    def start_at(self, step: int) -> None:
        """Count on from this step: the framework resumes a training that no guard has seen."""
        self._step = step

    def record(self, event: str, line: str = "", **details: Any) -> None:
        """Write down what the framework did: a checkpoint, an evaluation; ``line`` goes to the terminal too."""
        self._recorder.announce(event, self._step, line, **details)

    def tell_sign(self, sign: Sign) -> None:
        """Tell of a sign of post-training that was seen in the training itself, and not in its signals."""
        self._post_training.tell(sign)

    # -- what belongs to a plain loop --------------------------------------------------------------------------------

    def backward(self, *_: Any, **__: Any) -> None:
        """Not here."""
        raise UsageError(NOT_HERE, fix="use driven.gather(loss)")

    def step(self, *_: Any, **__: Any) -> None:
        """Not here."""
        raise UsageError(NOT_HERE, fix="use driven.judge() and driven.settle()")


def _ender(driven: DrivenGuard, began: Pass | None) -> Callable[[Tensor], None]:
    def end(loss: Tensor) -> None:
        driven._passes.end(began, loss)
        driven._progress.at(Phase.BACKWARD, driven._step + 1)

    return end
