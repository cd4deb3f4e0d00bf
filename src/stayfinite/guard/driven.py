"""The guard of a training that a framework drives.

The framework runs forward and backward, clips, steps the optimizer and the schedule, and zeroes the gradients. It
cannot call ``guard.step(loss)``, but can call the guard at the right moments::

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
from stayfinite.measure.gradients import HALF, clip_gradients
from stayfinite.measure.reading import Reading
from stayfinite.measure.sample import Sampler
from stayfinite.state.shards import full_value

NOT_HERE = "a framework drives this training: it runs backward, clips and steps itself"


class DrivenGuard(Guard):
    """Guards a loop that belongs to a framework. Constructed like a :class:`Guard`.

    ``scheduler`` and ``scaler`` are restored by a rollback and otherwise left to the framework; ``max_norm`` is for the
    record. ``forward`` is only called to explain a bad step. The framework writes the checkpoints.
    """

    _driven: ClassVar[bool] = True

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._reading: Reading | None = None
        self._decided: list[JudgedStep] = []
        self._sampler: Sampler | None = None
        super().__init__(*args, **settings)

    # -- the framework's loop ----------------------------------------------------------------------------------------

    @contextmanager
    def passing(self, batch: Any) -> Iterator[Callable[[Tensor], None]]:
        """Context for a forward pass on this batch; call the yielded function with the loss.

        What a re-run needs is kept until the step is settled. Enter it inside the autocast of the pass, if any.
        """
        self._life.check_open()
        self._setup.buffers.begin()
        if torch.is_grad_enabled():
            self._replays.expect(self._step + 1, self._setup.roster)
        with self._forward.recorded(batch) as passed:

            def end(loss: Tensor) -> None:
                passed(loss)
                self._progress.at(Phase.BACKWARD, self._step + 1)

            yield end

    def lead(self, loss: Tensor) -> None:
        """Announce that backward starts at this loss, if it is not the one passed to :meth:`passing`."""
        self._passes.lead(None, loss)

    def gather(self, loss: Tensor) -> None:
        """Record a loss that backward runs on, a share of the step's loss."""
        self._life.check_open()
        whole = full_value(loss)
        self._collector.add(whole, {})
        self._passes.trained(whole)

    def hear(self, signals: Mapping[str, Tensor | float]) -> None:
        """Add signals of the step, as in :meth:`Guard.step`; call it before :meth:`judge`."""
        self._hear(signals)

    def judge(self, *, unscale: bool = False, norm: Tensor | None = None, scale: float | None = None) -> Decision:
        """Decide whether the step may be taken. Repeated calls before :meth:`settle` return the same decision.

        Gradients, optimizer and schedule are not changed; if the step is refused, buffers changed by the forward pass
        are restored.

        Arguments:
            unscale: unscale the gradients first, if there is an fp16 scaler.
            norm: unscaled gradient norm over all ranks, from an engine that owns the gradients. They are not read then,
                and the engine must clip an unusual step to ``decision.limit``.
            scale: loss scale of an engine that scales fp16 losses itself.
        """
        self._life.check_open()
        if self._decided:
            return self._decided[0].judgement.decision
        if self._collector.loss is None:
            raise OrderError("driven.judge() called before driven.gather(loss)", fix="call driven.gather(loss) first")
        self._reading, self._sampler, self._decided = self._weigh(
            self._collector.loss, unscale=unscale, norm=norm, scale=scale
        )
        return self._decided[0].judgement.decision

    @property
    def gathered(self) -> bool:
        """Whether there is a loss to judge."""
        return self._collector.loss is not None

    @property
    def judged(self) -> bool:
        """Whether a step was judged but not settled yet."""
        return bool(self._decided)

    @property
    def grad_norm(self) -> Tensor:
        """Gradient norm of the judged step, before clipping."""
        assert self._reading is not None, "allowed only between judge() and settle()"
        return self._reading.gradients.total

    def clips_alike(self, parameters: Iterable[Tensor]) -> bool:
        """Whether :meth:`clip` is bitwise equal to ``torch.nn.utils.clip_grad_norm_`` for these parameters."""
        roster = self._setup.roster
        # The order matters too: norms are summed in it.
        asked = [id(p) for p in parameters if p.grad is not None]
        return (
            self._ranks.world == 1
            and asked == [id(p) for p in roster.parameters if p.grad is not None]
            and not any(dtype in HALF for _, dtype in roster.places)
            and all(p.grad is None or (type(p.grad) is Tensor and not p.grad.is_sparse) for p in roster.parameters)
        )

    def clips_at(self, max_norm: float) -> None:
        """Record the norm that the framework clips to."""
        if self._max_norm != max_norm and 0 < max_norm < math.inf:
            self._max_norm = self._judge.max_norm = self._setup.max_norm = check_max_norm(max_norm)

    def clip(self, max_norm: float) -> Tensor:
        """Clip with the norms already measured, without a second pass over the gradients."""
        assert self._reading is not None, "allowed only between judge() and settle()"
        gradients = self._reading.gradients
        limit = self._decided[0].judgement.decision.limit
        # Gradients of an unusual step were limited when it was judged.
        limited = gradients if limit is None else replace(gradients, total=gradients.total.clamp(max=limit))
        clip_gradients(limited, max_norm)
        return gradients.total

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Context for the framework's optimizer step, with the learning rate in force."""
        with self._setup.cut.applied(self._optimizer):
            yield
        if self._setup.alarm is not None or self._judge.policy.mode != "watch":
            self._setup.buffers.keep()

    def settle(self) -> None:
        """Act on the step after the framework is done with it, whether it was taken or not.

        Raises:
            TrainingDiverged: as :meth:`Guard.step`.
        """
        self._life.check_open()
        decided, sampler = self._decided, self._sampler
        if sampler is not None:
            self._tell_sample(sampler.finish())
        self.abandon()
        if decided:
            self._take_note(decided)
            self._between_steps()
            self._progress.at(Phase.OUTSIDE, self._step + 1)

    def abandon(self) -> None:
        """Discard what was gathered for the step."""
        self._forget_gathered()
        self._reading, self._decided, self._sampler = None, [], None

    @property
    def rate_factor(self) -> float:
        """Current factor of a learning rate cut; 1 without one."""
        return self._setup.cut.factor

    @property
    def precision(self) -> str | None:
        """Current precision of the ladder; None if the policy names none."""
        return self._precision.current

    @property
    def causes(self) -> dict[str, int]:
        """Causes found so far, with the step of the first occurrence."""
        return dict(self._recorder.causes)

    @property
    def unusual(self) -> dict[str, int]:
        """Counts of bounded finite steps, and of rollbacks caused by one."""
        return self._recorder.tally.unusual

    def any_rank(self, here: bool) -> bool:
        """Whether it is true on any rank; every rank must call this."""
        return bool(self._ranks.highest(int(here)))

    def start_at(self, step: int) -> None:
        """Continue counting from this step: the framework resumes a training without guard state."""
        self._step = step

    def record(self, event: str, line: str = "", **details: Any) -> None:
        """Record an event of the framework (a checkpoint, an evaluation); ``line`` is also printed."""
        self._recorder.announce(event, self._step, line, **details)

    def tell_sign(self, sign: Sign) -> None:
        """Report a post-training sign that was seen in the training itself, not in its signals."""
        self._post_training.tell(sign)

    # -- what belongs to a plain loop --------------------------------------------------------------------------------

    def backward(self, *_: Any, **__: Any) -> None:
        """Not available: use :meth:`gather`."""
        raise UsageError(NOT_HERE, fix="use driven.gather(loss)")

    def step(self, *_: Any, **__: Any) -> None:
        """Not available: use :meth:`judge` and :meth:`settle`."""
        raise UsageError(NOT_HERE, fix="use driven.judge() and driven.settle()")
