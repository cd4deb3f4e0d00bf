"""Record what the guard did: run directory, terminal, summary."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from stayfinite.core.decision import Code, Decision
from stayfinite.core.finding import Finding
from stayfinite.core.judge import Judgement
from stayfinite.core.records import decision_record, finding_record, plain_event, step_record
from stayfinite.guard.feeding.loaders import Unlearned
from stayfinite.guard.supervised import leave_word
from stayfinite.guard.telling.groups import Groups
from stayfinite.guard.telling.journal import Journal, now, run_record
from stayfinite.guard.telling.layers import Layers
from stayfinite.guard.telling.live import live_curves
from stayfinite.guard.telling.reporting import REPORT, Reporter
from stayfinite.guard.telling.tally import Tally
from stayfinite.measure.mailbox import Mailbox
from stayfinite.measure.sample import FIELDS, Sample
from stayfinite.report.terminal import Console, Voice, summary

REMEMBERED = 1024
"""Decisions in ``guard.decisions``."""

STEPS, EVENTS, LAYERS, RUN = "steps.jsonl", "events.jsonl", "layers.npz", "run.json"
LEDGER = "ledger.json"
LAYERS_REST = 200
"""Pause after writing layers.npz, as a multiple of its duration: at most half a percent of the time."""

MOST_TOLD = 1000
"""Most rows and groups in the last event."""

SHOWN_ROWS = 8
"""Most rows in the summary."""

UNEXPLAINED = frozenset({Code.SCALE_SEARCH, Code.REPLAY_MISMATCH})
"""Refusals that need no forward function to be explained."""

SIGN = "sign"
"""Event of a post-training sign."""

WORTH_A_LOOK = frozenset({"incident", "autopsy"})
"""Events that refresh report.html."""


class Recorder:
    """Records and prints what becomes known, in step order.

    With several ranks, rank 0 writes and prints for all; other ranks report only their own trouble, in a file of their
    own and with their number.
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
        hint: str = "",
    ) -> None:
        self._first = rank == 0
        self._hint = hint
        self._events = EVENTS if self._first else f"events-rank{rank:05d}.jsonl"
        self.decisions: deque[Decision] = deque(maxlen=REMEMBERED)
        self._journal = Journal(run_dir)
        self._reporter = Reporter(self._journal.directory if report and self._first else None)
        self._voice = Voice(console, "" if self._first else f"rank {rank}: ")
        self.tally = Tally()
        self._groups = Groups(None) if groups is None else groups
        self._unlearned = unlearned
        self._layers = Layers()
        self._layers_rest_until = 0.0
        self._samples: Mailbox[tuple[int, tuple[str, ...], tuple[int, ...]]] = Mailbox()
        self._live = live_curves() if self._first else None
        self._launched = False
        self._saved = False
        """Whether a checkpoint was written."""
        self.dropped = 0
        """Backward passes since the last step, which no step will take."""
        self.causes: dict[str, int] = {}
        """Causes found on this rank, with the step of the first occurrence."""

    def launch(self, step: int, describe: Callable[[], dict[str, Any]]) -> None:
        """Record the launch at the first step; ``describe`` returns its record. Later calls do nothing."""
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
        """Send a sample to the host; it is written when it arrives."""
        if not self._first:
            return
        self._samples.post((sample.step, names, sample.indices), sample.table.reshape(-1))

    @property
    def directory(self) -> Path | None:
        """The run directory."""
        return self._journal.directory

    def note(self, judgement: Judgement, done: Mapping[str, Any] | None = None) -> None:
        """Record a decided step; ``done`` is the action beyond a veto."""
        decision = judgement.decision
        self.decisions.append(decision)
        self.tally.count(decision)
        for sentence in self._groups.count(decision):
            line = f"WARNING: {sentence}: the model hardly learns from them"
            self.announce("group-refused", decision.step, line, reason=sentence)
        if self._first:
            self._journal.line(STEPS, step_record(decision))
            if decision.notable:
                self._journal.line(EVENTS, decision_record(decision, now()) | dict(done or {}))
                hint = self._hint if decision.refused and decision.code not in UNEXPLAINED else ""
                self._voice.decision(decision, done, hint)
                self._hint = "" if hint else self._hint
        for finding in judgement.findings:
            self.find(finding, decision.step)
        if self._live is not None:
            self._live.take(decision)

    def find(self, finding: Finding, step: int) -> None:
        """Record a finding."""
        self.causes.setdefault(finding.cause, step)
        if self._first:
            self._journal.line(EVENTS, finding_record(finding, step, now()))
            self._voice.finding(finding)

    def announce(self, event: str, step: int, line: str = "", **details: Any) -> None:
        """Record an event that all ranks know; rank 0 prints it."""
        if self._first:
            self.trouble(event, step, line, **details)

    def trouble(self, event: str, step: int, line: str = "", **details: Any) -> None:
        """Record an event of this rank."""
        self.tally.hear(event)
        self._saved |= event == "checkpoint"
        if cause := details.get("cause"):
            self.causes.setdefault(str(cause), step)
            if event == SIGN:
                self.tally.see(str(cause), step)
        self._journal.line(self._events, plain_event(event, step, now(), details))
        if line:
            self._voice.text(line)
        if event in WORTH_A_LOOK:
            self.redraw()

    def pace(self, slowest: Any, step: int) -> None:
        """Record the slowest rank's share of a step, which all ranks know."""
        self.tally.slowest = (slowest.rank, slowest.host, slowest.share, slowest.mean_share)
        self.announce(
            "slowest-rank",
            step,
            slowest_rank=slowest.rank,
            host=slowest.host,
            share=round(slowest.share, 4),
            mean_share=round(slowest.mean_share, 4),
            step_seconds=round(slowest.step_seconds, 6),
        )

    def redraw(self) -> None:
        """Refresh report.html soon. Thread-safe."""
        self._reporter.soon()

    def say(self, line: str) -> None:
        """Print a line without recording it."""
        self._voice.text(line)

    def keep_ledger(self, content: bytes) -> None:
        """Write the ledger of skipped batches at once."""
        if self._first:
            self._journal.whole(LEDGER, content)

    def read_ledger(self) -> dict[str, Any]:
        """The written ledger; empty if none."""
        return self._journal.read(LEDGER)

    def collect(self, *, wait: bool = False) -> None:
        """Add the samples that arrived."""
        for (step, names, indices), table in self._samples.collect(wait=wait):
            self._layers.add(step, names, indices, table)
            norms = table[FIELDS.index("norm") :: len(FIELDS)]
            self.tally.look(names, indices, norms)
        if self._layers.due and time.monotonic() >= self._layers_rest_until:
            begun = time.monotonic()
            self._journal.whole(LAYERS, self._layers.to_bytes())
            ended = time.monotonic()
            self._layers_rest_until = ended + LAYERS_REST * (ended - begun)
        self._say_failed_report()

    def finish(self, event: str, step: int, reason: str, **details: Any) -> None:
        """Write what is left and print the summary. Silent if there was never a step or a backward pass."""
        remarks = []
        if self.dropped:
            one = self.dropped == 1
            remarks.append(
                f"{self.dropped:,} backward{'' if one else 's'} without a step {'was' if one else 'were'} dropped"
            )
        if not self._launched:
            if remarks and self._first:
                self._voice.text(remarks[0])
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
        told = {"reason": reason, **details, "memory": _memory_peaks()}
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
        if bounded := self.tally.mostly_bounded:
            remarks.append(bounded)
        if directory and self._journal.has_gaps and not (drawn or self._saved or self._journal.wrote):
            remarks.append(f"WARNING: nothing was saved: {directory} could not be written")
            directory = None
        if directory and drawn:
            directory += f"; see {REPORT}"
        if directory and self._journal.has_gaps:
            directory += ", with gaps: some writes failed"
        told_at_end = summary(
            self.tally, unlearned=in_words(unlearned), groups=neglected, remarks=remarks, directory=directory
        )
        self._voice.text(told_at_end)

    def _say_failed_report(self, step: int | None = None) -> None:
        if reason := self._reporter.failure():
            known = self.decisions[-1].step if step is None and self.decisions else step or 0
            self.trouble("report-failed", known, f"cannot write {REPORT}: {reason}", reason=reason)


def in_words(unlearned: Unlearned) -> str:
    """Data never trained on; empty if there is none."""
    if unlearned.rows:
        share = (
            f" of {unlearned.of_rows:,} ({len(unlearned.rows) / unlearned.of_rows:.2%})" if unlearned.of_rows else ""
        )
        shown = ", ".join(map(str, unlearned.rows[:SHOWN_ROWS])) + (", ..." if len(unlearned.rows) > SHOWN_ROWS else "")
        return f"{len(unlearned.rows):,} rows{share} were never trained on: {shown}"
    if unlearned.batches:
        return f"{unlearned.batches:,} of {unlearned.of_batches:,} batches were never trained on"
    return ""


def _memory_peaks() -> dict[str, int]:
    """Peak bytes by place: the process on the host, and each CUDA device in use."""
    peaks = {}
    try:
        import resource
    except ImportError:  # Windows
        pass
    else:
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peaks["host, the whole process"] = held if sys.platform == "darwin" else held << 10
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            if allocated := torch.cuda.max_memory_allocated(device):
                peaks[f"cuda:{device}, allocated"] = allocated
                peaks[f"cuda:{device}, reserved"] = torch.cuda.max_memory_reserved(device)
    return peaks
