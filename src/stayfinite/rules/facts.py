"""All known facts about a run: from its logs, settings and probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from stayfinite.core.series import Message, RunSeries
from stayfinite.core.settings import Settings, in_script
from stayfinite.rules.context import Context, understand
from stayfinite.rules.haystack import Haystack
from stayfinite.rules.reported_experiments import ReportedExperiment, reported_experiments
from stayfinite.rules.run_symptoms import symptoms_of
from stayfinite.rules.signs.post_training import Seen, signs_in
from stayfinite.rules.signs.reported_symptoms import ReportedSymptom, by_a_person
from stayfinite.rules.skipped_steps import of_steps_taken
from stayfinite.rules.symptoms import Symptoms
from stayfinite.rules.told_courses import told_run
from stayfinite.rules.told_symptoms import with_told

LONGEST_STATEMENT = 12
"""Lines of a call that are joined."""

MOST_REMARKS = 100
"""Log lines searched for remarks on other runs."""


class Line(NamedTuple):
    """A line of a note, a setting or a log, or what numbers show there."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Observation:
    """A fact from a probe, a rerun or a checkpoint scan."""

    value: Any
    where: str = ""


@dataclass(frozen=True)
class Facts:
    """The input of the rules, which only read it."""

    runs: Sequence[RunSeries] = ()
    """One series per log."""
    settings: Settings = field(default_factory=Settings)
    observed: Mapping[str, Observation] = field(default_factory=dict)
    """By the names that rules declare in `observes`."""
    tried: Sequence[ReportedExperiment] = ()
    """Experiments with a reported outcome."""
    complaints: Sequence[ReportedSymptom] = ()
    """What somebody sees, whatever the logs show."""

    @cached_property
    def symptoms(self) -> Symptoms:
        """Symptoms in the numbers of the sickest run."""
        seen = symptoms_of(self.runs, self.settings.notes)
        return with_told(seen, self.complaints) if self.complaints else seen

    @cached_property
    def context(self) -> Context:
        """Model, precision, optimizer and hardware, from settings and log messages."""
        return understand(self.settings, [message.text for message in self.messages])

    @cached_property
    def reported_experiments(self) -> list[ReportedExperiment]:
        """Reported reruns with something changed."""
        tried = {world.subject for world in self.tried}
        remarks = list(self.settings.notes)
        # Library output among the numbers is not a remark, and people do not repeat remarks.
        remarks += [(each.where, each.text) for each in self.messages if each.count == 1][:MOST_REMARKS]
        return [*self.tried, *(world for world in reported_experiments(remarks) if world.subject not in tried)]

    @cached_property
    def post_training(self) -> dict[str, Seen]:
        """Signs in logs of RL or preference training, by cause."""
        if any(run.points_seen for run in self.runs):
            return signs_in(self.runs)
        told = [told_run(each.where, each.text) for each in self.reports]
        return signs_in([*self.runs, *(run for run in told if run.metrics)])

    @cached_property
    def messages(self) -> list[Message]:
        """Lines of all logs that are not measurements, grouped."""
        return [message for run in self.runs for message in run.messages]

    @cached_property
    def reports(self) -> list[Message]:
        """The messages without those about NaN in steps that a scaler skipped."""
        return [message for run in self.runs for message in of_steps_taken(run)]

    @cached_property
    def statements(self) -> list[Line]:
        """The notes, with multi-line calls joined."""
        found: list[Line] = []
        depth, lines = 0, 0
        for where, text in self.settings.notes:
            if depth > 0 and lines < LONGEST_STATEMENT:
                found[-1] = Line(found[-1].where, f"{found[-1].text} {text.strip()}")
                lines += 1
            else:
                found.append(Line(where, text))
                depth, lines = 0, 1
            depth = max(0, depth + sum(text.count(mark) for mark in "([{") - sum(text.count(mark) for mark in ")]}"))
        return found

    @cached_property
    def lines(self) -> list[Line]:
        """All notes, settings and messages."""
        texts = (Line(*each) for each in self.settings.texts())
        return [*texts, *(Line(message.where, message.text) for message in self.messages)]

    @cached_property
    def written(self) -> list[Line]:
        """All lines but those of scripts, if a person wrote some of them; none of a program's own log."""
        if not self.runs:
            return []
        lines = [each for each in self.lines if not in_script(each.where)]
        return lines if any(by_a_person(each.text) for each in lines) else []

    def said(self, pattern: str) -> Message | None:
        """The first message that matches the pattern (case ignored)."""
        return next(self.all_said(pattern), None)

    def all_said(self, pattern: str) -> Iterator[Message]:
        """Every message that matches the pattern (case ignored)."""
        return iter(self._said.matching(pattern))

    def mentioned(self, pattern: str) -> Line | None:
        """The first setting, note or message that matches the pattern (case ignored)."""
        written = self._written.matching(pattern)
        if written:
            return written[0]
        message = self.said(pattern)
        return None if message is None else Line(message.where, message.text)

    def seen(self, name: str) -> Observation | None:
        return self.observed.get(name)

    def metric(self, *names: str) -> list[tuple[float, str]]:
        """``(value, where)`` of the first of these metrics that any log has."""
        for name in names:
            for run in self.runs:
                track = run.metrics.get(name)
                if track is not None:
                    return [(v, run.where(line)) for v, line in zip(track.values, track.lines, strict=True)]
        return []

    @cached_property
    def _said(self) -> Haystack[Message]:
        return Haystack([(message.text, message) for message in self.messages])

    @cached_property
    def _written(self) -> Haystack[Line]:
        return Haystack([(text, Line(where, text)) for where, text in self.settings.texts()], recurring=True)
