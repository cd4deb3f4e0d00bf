"""Telling: what the guard did goes to the run directory, to the terminal, and into the summary."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stayfinite.core.decision import Decision
from stayfinite.core.finding import Finding
from stayfinite.core.judge import Judgement
from stayfinite.core.records import decision_record, finding_record, plain_event, step_record
from stayfinite.guard.feeding.loaders import Unlearned
from stayfinite.guard.supervised import leave_word
from stayfinite.guard.telling.groups import Groups
from stayfinite.guard.telling.journal import Journal, now
from stayfinite.guard.telling.launch import run_record
from stayfinite.guard.telling.layers import Layers
from stayfinite.guard.telling.live import live_curves
from stayfinite.guard.telling.reporting import REPORT, Reporter
from stayfinite.guard.telling.tally import Tally
from stayfinite.measure.mailbox import Mailbox
from stayfinite.measure.memory import memory_peaks
from stayfinite.measure.sample import FIELDS, Sample
from stayfinite.report.summary import summary
from stayfinite.report.terminal import Console, Voice

REMEMBERED = 1024
"""Decisions that ``guard.decisions`` holds."""

STEPS, EVENTS, LAYERS, RUN = "steps.jsonl", "events.jsonl", "layers.npz", "run.json"
LEDGER = "ledger.json"
LAYERS_REST = 200
"""After layers.npz was written it rests for so many times as long as that took: half a percent of the time at most."""

MOST_TOLD = 1000
"""Rows, and groups, that the last event names."""

SHOWN_ROWS = 8
"""Rows that the summary names."""

SIGN = "sign"
"""The event of a sign of post-training gone wrong."""

WORTH_A_LOOK = frozenset({"incident", "autopsy"})
"""Events after which report.html is drawn anew."""


class Recorder:
    """Writes down and says what became known, in the order of the steps.

    With several ranks the first one writes and speaks for all; another tells of its own trouble only, in a file of its
    own and under its number.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str] | None,
        console: Console | None,
        *,
        rank: int = 0,
        report: bool = True,
        groups: Groups | None = None,
        unlearned: Callable[[], Unlearned] = Unlearned,
    ) -> None:
        self._first = rank == 0
        self._events = EVENTS if self._first else f"events-rank{rank:05d}.jsonl"
        self.decisions: deque[Decision] = deque(maxlen=REMEMBERED)
        self._journal = Journal(run_dir)
        self._reporter = Reporter(self._journal.directory if report and self._first else None)
        self._voice = Voice(console, "" if self._first else f"rank {rank}: ")
        self._tally = Tally()
        self._groups = Groups(None) if groups is None else groups
        self._unlearned = unlearned
        self._layers = Layers()
        self._layers_rest_until = 0.0
        self._samples: Mailbox[tuple[int, tuple[str, ...], tuple[int, ...]]] = Mailbox()
        self._live = live_curves() if self._first else None
        self._launched = False
        self.causes: dict[str, int] = {}
        """What was found to be the matter, on this rank, with the step at which it first was."""

    def launch(self, step: int, describe: Callable[[], dict[str, Any]]) -> None:
        """The first step is about to be taken; ``describe`` tells what was launched. Later calls do nothing."""
        if self._launched:
            return
        self._launched = True
        directory = self._journal.directory
        leave_word("launched", step, run_dir=None if directory is None else str(directory.absolute()))
        if directory is None or not self._first:
            return
        record = run_record(self._journal.read(RUN), describe())
        self._journal.whole(RUN, json.dumps(record, indent=1, default=str).encode())
        self._journal.set_aside(LAYERS)
        event = "restart" if len(record["launches"]) > 1 else "start"
        self._journal.line(EVENTS, plain_event(event, step, now(), {}))

    def post(self, sample: Sample, names: tuple[str, ...]) -> None:
        """A closer look was taken; it is written when it arrives."""
        if not self._first:
            return
        self._samples.post((sample.step, names, sample.indices), sample.table.reshape(-1))

    @property
    def directory(self) -> Path | None:
        """Where the run is written."""
        return self._journal.directory

    @property
    def unusual(self) -> dict[str, int]:
        """Finite steps that were bounded, and rollbacks because of what followed one."""
        return self._tally.unusual

    def note(self, judgement: Judgement, done: Mapping[str, Any] | None = None) -> None:
        """A step has become known; ``done`` is what was done about it beyond a veto."""
        decision = judgement.decision
        self.decisions.append(decision)
        self._tally.count(decision)
        for sentence in self._groups.count(decision):
            line = f"WARNING: {sentence}: the model hardly learns from them"
            self.announce("group-refused", decision.step, line, reason=sentence)
        if self._first:
            self._journal.line(STEPS, step_record(decision))
            if decision.notable:
                self._journal.line(EVENTS, decision_record(decision, now()) | dict(done or {}))
                self._voice.decision(decision, done)
        for finding in judgement.findings:
            self.find(finding, decision.step)
        if self._live is not None:
            self._live.take(decision)

    def find(self, finding: Finding, step: int) -> None:
        """A known way of failing was recognized."""
        self.causes.setdefault(finding.cause, step)
        if self._first:
            self._journal.line(EVENTS, finding_record(finding, step, now()))
            self._voice.finding(finding)

    def announce(self, event: str, step: int, line: str = "", **details: Any) -> None:
        """Tell of something that all ranks know of; the first one speaks."""
        if self._first:
            self.trouble(event, step, line, **details)

    def trouble(self, event: str, step: int, line: str = "", **details: Any) -> None:
        """Tell of something that happened on this rank."""
        self._tally.hear(event)
        if cause := details.get("cause"):
            self.causes.setdefault(str(cause), step)
            if event == SIGN:
                self._tally.see(str(cause), step)
        self._journal.line(self._events, plain_event(event, step, now(), details))
        if line:
            self._voice.text(line)
        if event in WORTH_A_LOOK:
            self.redraw()

    def pace(self, slowest: Any, host: str, step: int) -> None:
        """How much of a step is the slowest rank's own; all ranks know it."""
        self._tally.slowest = (slowest.rank, host, slowest.share, slowest.mean_share)
        self.announce(
            "slowest-rank",
            step,
            slowest_rank=slowest.rank,
            host=host,
            share=round(slowest.share, 4),
            mean_share=round(slowest.mean_share, 4),
            step_seconds=round(slowest.step_seconds, 6),
        )

    def redraw(self) -> None:
        """There is more to see now: report.html is drawn anew, soon. Any thread may ask for it."""
        self._reporter.soon()

    def say(self, line: str) -> None:
        """A line on the terminal, and nowhere else."""
        self._voice.text(line)

    def keep_ledger(self, content: bytes) -> None:
        """Write down at once which batches are to be passed over."""
        if self._first:
            self._journal.whole(LEDGER, content)

    def read_ledger(self) -> dict[str, Any]:
        """What was written down of it; empty if nothing was."""
        return self._journal.read(LEDGER)

    def collect(self, *, wait: bool = False) -> None:
        """Take in the closer looks that have arrived."""
        for (step, names, indices), table in self._samples.collect(wait=wait):
            self._layers.add(step, names, indices, table)
            norms = table[FIELDS.index("norm") :: len(FIELDS)]
            self._tally.look(names, indices, norms)
        if self._layers.due and time.monotonic() >= self._layers_rest_until:
            begun = time.monotonic()
            self._journal.whole(LAYERS, self._layers.to_bytes())
            ended = time.monotonic()
            self._layers_rest_until = ended + LAYERS_REST * (ended - begun)
        self._say_failed_report()

    def finish(self, event: str, step: int, reason: str, **details: Any) -> None:
        """The run has ended: write what is left and say what it came to. Silent where no step was ever taken."""
        if not self._launched:
            return
        if not self._first:
            if event != "closed":
                self.trouble(event, step, reason=reason, **details)
            self._journal.close()
            return
        if self._live is not None:
            self._live.finish()
        if self._layers.unwritten:
            self._journal.whole(LAYERS, self._layers.to_bytes())
        unlearned, neglected = self._unlearned(), self._groups.neglected()
        told = {"reason": reason, **details, "memory": memory_peaks()}
        if unlearned.batches or unlearned.rows or neglected:
            told["unlearned"] = {
                "rows": list(unlearned.rows[:MOST_TOLD]),
                "row_count": len(unlearned.rows),
                "of_rows": unlearned.of_rows,
                "batches": unlearned.batches,
                "of_batches": unlearned.of_batches,
                "groups": neglected[:MOST_TOLD],
            }
        self._journal.line(EVENTS, plain_event(event, step, now(), told))
        drawn = self._reporter.finish()
        self._say_failed_report(step)
        self._journal.close()
        directory = None if self._journal.directory is None else str(self._journal.directory)
        if directory and drawn:
            directory += f"; see {REPORT}"
        if directory and self._journal.has_gaps:
            directory += ", with gaps: some writes failed"
        self._voice.text(
            summary(**self._tally.figures(), unlearned=in_words(unlearned), groups=neglected, directory=directory)
        )

    def _say_failed_report(self, step: int | None = None) -> None:
        if reason := self._reporter.failure():
            known = self.decisions[-1].step if step is None and self.decisions else step or 0
            self.trouble("report-failed", known, f"cannot write {REPORT}: {reason}", reason=reason)


def in_words(unlearned: Unlearned) -> str:
    """What was never learned from; empty where there is nothing of that kind."""
    if unlearned.rows:
        share = (
            f" of {unlearned.of_rows:,} ({len(unlearned.rows) / unlearned.of_rows:.2%})" if unlearned.of_rows else ""
        )
        shown = ", ".join(map(str, unlearned.rows[:SHOWN_ROWS])) + (", ..." if len(unlearned.rows) > SHOWN_ROWS else "")
        return f"{len(unlearned.rows):,} rows{share} were never learned from: {shown}"
    if unlearned.batches:
        return f"{unlearned.batches:,} of {unlearned.of_batches:,} batches were never learned from"
    return ""
