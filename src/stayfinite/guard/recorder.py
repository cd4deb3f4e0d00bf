"""Telling: what the guard did goes to the run directory, to the terminal, and into the summary."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from stayfinite.core.decision import Decision
from stayfinite.core.judge import Judgement
from stayfinite.core.records import decision_record, finding_record, plain_event, step_record
from stayfinite.guard.journal import Journal, now
from stayfinite.guard.launch import run_record
from stayfinite.guard.layers import Layers
from stayfinite.guard.tally import Tally
from stayfinite.measure.mailbox import Mailbox
from stayfinite.measure.sample import FIELDS, Sample
from stayfinite.report.summary import summary
from stayfinite.report.terminal import Console, Voice

REMEMBERED = 1024
"""Decisions that ``guard.decisions`` holds."""

STEPS, EVENTS, LAYERS, RUN = "steps.jsonl", "events.jsonl", "layers.npz", "run.json"


class Recorder:
    """Writes down and says what became known, in the order of the steps."""

    def __init__(self, run_dir: str | os.PathLike[str] | None, console: Console | None) -> None:
        self.decisions: deque[Decision] = deque(maxlen=REMEMBERED)
        self._journal = Journal(run_dir)
        self._voice = Voice(console)
        self._tally = Tally()
        self._layers = Layers()
        self._samples: Mailbox[tuple[int, tuple[str, ...], tuple[int, ...]]] = Mailbox()
        self._launched = False

    def launch(self, step: int, describe: Callable[[], dict[str, Any]]) -> None:
        """The first step is about to be taken; ``describe`` tells what was launched. Later calls do nothing."""
        if self._launched:
            return
        self._launched = True
        if self._journal.directory is None:
            return
        record = run_record(self._journal.read(RUN), describe())
        self._journal.whole(RUN, json.dumps(record, indent=1, default=str).encode())
        self._journal.set_aside(LAYERS)
        event = "restart" if len(record["launches"]) > 1 else "start"
        self._journal.line(EVENTS, plain_event(event, step, now(), {}))

    def post(self, sample: Sample, names: tuple[str, ...]) -> None:
        """A closer look was taken; it is written when it arrives."""
        self._samples.post((sample.step, names, sample.indices), sample.table.reshape(-1))

    def note(self, judgement: Judgement) -> None:
        """A step has become known."""
        decision = judgement.decision
        self.decisions.append(decision)
        self._tally.count(decision)
        self._journal.line(STEPS, step_record(decision))
        if decision.notable:
            self._journal.line(EVENTS, decision_record(decision, now()))
            self._voice.decision(decision)
        for finding in judgement.findings:
            self._journal.line(EVENTS, finding_record(finding, decision.step, now()))
            self._voice.finding(finding)

    def collect(self, *, wait: bool = False) -> None:
        """Take in the closer looks that have arrived."""
        for (step, names, indices), table in self._samples.collect(wait=wait):
            self._layers.add(step, names, indices, table)
            norms = table[FIELDS.index("norm") :: len(FIELDS)]
            self._tally.look(names, zip(indices, norms, strict=True))
        if self._layers.due:
            self._journal.whole(LAYERS, self._layers.to_bytes())

    def finish(self, event: str, step: int, reason: str, **details: str) -> None:
        """The run has ended: write what is left and say what it came to. Silent where no step was ever taken."""
        if not self._launched:
            return
        if self._layers.unwritten:
            self._journal.whole(LAYERS, self._layers.to_bytes())
        self._journal.line(EVENTS, plain_event(event, step, now(), {"reason": reason, **details}))
        self._journal.close()
        directory = None if self._journal.directory is None else str(self._journal.directory)
        if directory and self._journal.has_gaps:
            directory += ", with gaps: it could not be written all the time"
        self._voice.text(summary(**self._tally.figures(), directory=directory))
