"""Incidents: the first refused step of each kind, captured on disk and explained at once. Errors here never stop
training.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stayfinite.autopsy.incidents.incident_files import Archive
from stayfinite.autopsy.steps.batch_parts import batch_size
from stayfinite.core import spikes
from stayfinite.core.decision import Code, Decision
from stayfinite.core.policy import Policy
from stayfinite.guard.gates.gates import JudgedStep
from stayfinite.guard.incidents.capturing import Case, draft_of, rows_in_words
from stayfinite.guard.incidents.passes import ForwardPass, Pass, guilty, share_of
from stayfinite.guard.incidents.rerunning import explain, find_guilty, obstacle
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.state.parts import TrainingParts
from stayfinite.state.snapshots import Snapshot

INCIDENTS = "incidents"
HISTORY = 50
"""Earlier steps whose signals are saved with the refused one."""

SOON = 2.0
"""Seconds of an autopsy after which a line explains the wait."""

TRIGGERS = (
    Code.LOSS_NOT_FINITE,
    Code.GRADIENT_NOT_FINITE,
    Code.LOSS_SPIKE,
    Code.GRADIENT_SPIKE,
    Code.SCALE_SEARCH,
    Code.REPLAY_MISMATCH,
)
SPIKES = (Code.LOSS_SPIKE, Code.GRADIENT_SPIKE)


class Incidents:
    """Captures and explains refused steps of a training with a known forward pass.

    Arguments:
        policy: limits on number, size and time.
        ranks: all processes; the bad one writes and explains.
        known_good: returns the last known-good state, or None.
        evidence: returns the record of a re-run that differed, or None.
        items: returns the dataset indices of each batch of a step.
    """

    def __init__(
        self,
        parts: TrainingParts,
        policy: Policy,
        ranks: Ranks,
        recorder: Recorder,
        *,
        forward: ForwardPass,
        known_good: Callable[[], Snapshot | None],
        evidence: Callable[[int], dict[str, Any] | None] = lambda _step: None,
        items: Callable[[int], Sequence[tuple[int, ...] | None]] = lambda _step: (),
    ) -> None:
        self._parts, self._policy, self._ranks, self._recorder = parts, policy, ranks, recorder
        self._forward, self._passes, self._known_good, self._evidence = forward, forward.passes, known_good, evidence
        self._items = items
        self._kinds: set[tuple[str, str]] = set()
        # Also filled by the writer thread.
        self._unsaid: deque[tuple[str, int, str, dict[str, Any]]] = deque()
        self._seconds = policy.autopsy_seconds
        self._waited: dict[int, float] = {}
        """Seconds that training waited for the copy, by step."""
        self._found: dict[str, dict[str, Any]] = {}
        """Autopsies by trigger code."""
        directory = recorder.directory
        self._archive = None if directory is None else Archive(directory / INCIDENTS, policy.max_incidents)
        if not policy.max_incidents or forward.function is None:
            self._passes.stop()

    def look(self, decided: JudgedStep, step: int, *, taken: bool = True) -> None:
        """Examine a decided step before anything is done about it. Never raises.

        Arguments:
            taken: in monitor mode, whether the optimizer has already taken the step.
        """
        decision = decided.judgement.decision
        try:
            if self._passes.wanted:
                self._consider(decided, step, taken=taken)
        except Exception as error:
            self._say("incident-failed", decision.step, f"cannot capture step {decision.step}", error)
        if taken:
            self._passes.settle(decision.step)

    def watch(self, step: int) -> None:
        """Keep the batch of an unusual step on probation, and the last ones after it."""
        self._passes.watch(step)

    def blame(self, step: int, limits: Mapping[str, float]) -> None:
        """Capture and explain a step that did harm, after the run has gone back. Never raises.

        Arguments:
            limits: loss and gradient norm above which it was unusual.
        """
        decision = next((each for each in self._recorder.decisions if each.step == step), None)
        if decision is None or not self._passes.wanted:
            return
        trigger = Code.LOSS_SPIKE if decision.limit is None else Code.GRADIENT_SPIKE
        notes = {"weights": "weights of the known-good state the run returned to"}
        self._first_of(
            decision, trigger, "", here=self._ranks.first, scale=1.0, limits=limits, later=0, notes=lambda _: notes
        )

    def look_away(self) -> None:
        """End the probation."""
        self._passes.look_away()

    def tell(self) -> None:
        """Report what has become known since the last call; call it after the decision was reported."""
        self._tell_filed()
        while self._unsaid:
            event, step, line, details = self._unsaid.popleft()
            self._recorder.trouble(event, step, line, **details)

    def hurry(self) -> None:
        """Capture but do not explain from now on, because the loop has failed."""
        self._seconds = 0.0

    def finish(self) -> None:
        """Wait until everything is written, and report it."""
        self._tell_filed(wait=True)
        self.tell()

    def found_on(self, decision: Decision) -> dict[str, Any] | None:
        """Autopsy of the kind of trouble in a decision; None if there is none."""
        alike = SPIKES if decision.signals.finite else (trigger_of(decision, {}),)
        return next((self._found[code] for code in alike if code in self._found), None)

    def _consider(self, decided: JudgedStep, step: int, *, taken: bool) -> None:
        decision = decided.judgement.decision
        if not decision.refused and decision.code not in TRIGGERS:
            return
        limit = spikes.limits(decided.judgement.memory.ladder.spikes, self._policy)
        trigger = trigger_of(decision, limit)
        if trigger is Code.SCALE_SEARCH and not self._policy.explain_scale_search:
            return
        self._first_of(
            decision,
            trigger,
            _family(decision.signals.bad_parameters),
            here=self._ranks.rank == min(decision.signals.bad_ranks, default=0),
            scale=decision.signals.loss_scale or 1.0,
            limits=self._limits_of(decided) if trigger in SPIKES else None,
            later=self._later(decision, step, taken=taken),
            notes=lambda bad: self._notes(bad, decision.step, later=step - decision.step),
        )

    def _first_of(
        self,
        decision: Decision,
        trigger: Code,
        family: str,
        *,
        here: bool,
        scale: float,
        limits: Mapping[str, float] | None,
        later: int,
        notes: Callable[[Pass], dict[str, Any]],
    ) -> None:
        """Capture and explain a bad step if it is the first of its kind.

        Arguments:
            here: whether this rank does it. Every rank counts, so all stop remembering at the same incident.
        """
        passes = self._passes.of(decision.step)
        if (trigger, family) in self._kinds or not passes:
            return
        self._kinds.add((trigger, family))
        try:
            if here:
                bad, sure = guilty(passes, loss_spike=trigger is Code.LOSS_SPIKE)
                case = Case(
                    decision=decision,
                    trigger=trigger,
                    guilty=bad,
                    passes=len(passes),
                    sure=sure,
                    scale=scale * share_of(passes),
                    precision=self._forward.precision.current,
                    history=[each for each in self._recorder.decisions if each.step < decision.step][-HISTORY:],
                    spike_limit=limits,
                    good=self._known_good(),
                    later=later,
                    rank=self._ranks.rank,
                    notes=notes(bad),
                )
                case = case if sure or trigger is Code.REPLAY_MISMATCH else self._search(case, passes)
                self._act(self._with_items(case, passes))
        except Exception as error:
            self._say("incident-failed", decision.step, f"cannot capture step {decision.step}", error)
        if len(self._kinds) >= self._policy.max_incidents:
            self._passes.stop()

    def _limits_of(self, decided: JudgedStep) -> dict[str, float]:
        signals = decided.judgement.decision.signals
        state = decided.judgement.memory.ladder.spikes
        return spikes.limits_of_return(state, self._policy, loss=signals.loss, norm=signals.grad_norm)

    def _notes(self, bad: Pass, step: int, *, later: int) -> dict[str, Any]:
        """Differences between the step and its re-run, and the record of a replay that differed."""
        notes: dict[str, Any] = {}
        if bad.changed:
            notes["batch"] = "the forward pass modifies its batch: a re-run starts from the modified one"
        if later:
            notes["weights"] = f"reported {later} steps late: the weights are newer"
        if getattr(self._forward.function, "is_recorded", False):
            notes["random"] = "recorded kernels are re-run as they are: random numbers may differ"
        if (shown := self._evidence(step)) is not None:
            notes["replay"] = shown
        return notes

    def _with_items(self, case: Case, passes: list[Pass]) -> Case:
        """The case with the dataset indices of its batch, if ``guard.batches`` handed out one batch per pass."""
        handed = self._items(case.decision.step)
        at = next((number for number, each in enumerate(passes) if each is case.guilty), -1)
        items = handed[at] if len(handed) == len(passes) and at >= 0 else None
        if items is None or len(items) != batch_size(case.guilty.batch):
            return case
        return replace(case, notes={**case.notes, "items": list(items)})

    def _act(self, case: Case) -> None:
        number = None
        try:
            number = self._capture(case)
        except Exception as error:
            self._say("incident-failed", case.decision.step, f"cannot capture step {case.decision.step}", error)
        # A one-time device fault cannot be proved by changing the step.
        if self._seconds and case.trigger is not Code.REPLAY_MISMATCH:
            self._explain(case, number)

    def _search(self, case: Case, passes: list[Pass]) -> Case:
        """If the losses of an accumulated step do not show it, find the batch that is bad alone."""
        forward = self._forward.function
        world = self._ranks.world
        if not self._seconds or forward is None or obstacle(replace(case, sure=True), self._parts.model, world):
            return case
        try:
            found = find_guilty(case, passes, self._parts, forward, seconds=self._seconds / 4, world=world)
        except Exception as error:
            self._say("autopsy-failed", case.decision.step, "its batches could not be re-run", error)
            return case
        return case if found is None else replace(case, guilty=found, sure=True)

    def _capture(self, case: Case) -> int | None:
        archive = self._archive
        if archive is None or self._recorder.directory is None:
            return None
        number = archive.number()
        if number is None:
            reason = f"{archive.directory} already holds {self._policy.max_incidents} incidents"
            self._unsaid.append(("incident-not-kept", case.decision.step, "", {"reason": reason}))
            return None
        limit = self._policy.incident_megabytes << 20
        begun = time.perf_counter()
        rows = rows_in_words(self._forward.describe, case.guilty.batch)
        archive.file(number, draft_of(replace(case, rows=rows), self._parts, self._recorder.directory, limit))
        self._waited[case.decision.step] = time.perf_counter() - begun
        return number

    def _explain(self, case: Case, number: int | None) -> None:
        step, place = case.decision.step, "" if number is None else f"{INCIDENTS}/{number:04d}"
        try:
            if reason := obstacle(case, self._parts.model, self._ranks.world):
                later = f"; use `stayfinite replay {place}`" if place else ""
                line = f"step {step} cannot be explained now: {reason}{later}"
                self._unsaid.append(("autopsy-skipped", step, line, {"reason": reason, "incident": place or None}))
                return
            assert self._forward.function is not None
            with self._progress(step):
                found = explain(case, self._parts, self._forward.function, self._seconds, self._ranks.world).to_json()
        except Exception as error:
            self._say("autopsy-failed", step, f"cannot explain step {step}", error)
            return
        self._found[case.trigger] = found
        details = {name: found.get(name) for name in ("cause", "confidence", "verdict", "origin", "rows", "fix")}
        line = f"step {step} explained: {found['verdict']}" + (f" ({place})" if place else "")
        self._unsaid.append(("autopsy", step, line, details | {"incident": place or None}))
        if number is not None and self._archive is not None:
            self._archive.attach(number, found, lambda error: self._attached(step, error))

    def _attached(self, step: int, error: Exception | None) -> None:
        """Called in the writer thread."""
        if error is None:
            self._recorder.redraw()
        else:
            self._say("autopsy-failed", step, f"the autopsy of step {step} is lost", error)

    @contextmanager
    def _progress(self, step: int) -> Iterator[None]:
        """Print a line if training has to wait."""
        line = f"explaining step {step}, up to {self._seconds:g} s"
        timer = threading.Timer(SOON, self._recorder.say, (line,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _tell_filed(self, *, wait: bool = False) -> None:
        for filed in () if self._archive is None else self._archive.collect(wait=wait):
            if filed.error is not None:
                self._say("incident-failed", filed.step, f"the incident of step {filed.step} is lost", filed.error)
                continue
            details = {"path": f"{filed.path}", "bytes": filed.nbytes, "seconds": round(filed.seconds, 3)}
            details["waited"] = round(self._waited.get(filed.step, 0.0), 4)
            self._unsaid.append(("incident", filed.step, "", details))

    def _later(self, decision: Decision, step: int, *, taken: bool) -> int:
        """Steps by which the weights are newer than the bad step's; -1 if that step changed them."""
        if self._policy.mode != "watch" or not taken:
            return step - decision.step
        left_to_scaler = decision.signals.loss_scale is not None and decision.signals.bad_count
        return step - decision.step if left_to_scaler else -1

    def _say(self, event: str, step: int, what: str, error: Exception) -> None:
        reason = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
        self._unsaid.append((event, step, f"{what}: {reason}", {"reason": reason}))


def trigger_of(decision: Decision, limit: Mapping[str, float]) -> Code:
    """What was wrong with a step, whatever was done about it; ``limit`` is the spike limit."""
    signals = decision.signals
    if decision.code in TRIGGERS:
        return decision.code
    if not math.isfinite(signals.loss):
        return Code.LOSS_NOT_FINITE
    if not math.isfinite(signals.grad_norm):
        return Code.GRADIENT_NOT_FINITE
    return Code.LOSS_SPIKE if signals.loss > limit.get("loss", math.inf) else Code.GRADIENT_SPIKE


def _family(names: tuple[str, ...]) -> str:
    """Part of the model with the first bad parameter: `encoder.block` for `encoder.block.3.wo.weight`."""
    if not names:
        return ""
    words: list[str] = []
    for word in names[0].split(".")[:-1]:
        if word.isdigit():
            break
        words.append(word)
    return ".".join(words[:2])
