"""A guarded run, judged by what the guard itself has written and nothing else that lies in its directory.

The directory may be a project's, with logs and checkpoints of years in it: at the end of a training nobody waits for
them to be read.
"""

from __future__ import annotations

from pathlib import Path

from stayfinite.core.finding import Finding
from stayfinite.core.series import RunSeries
from stayfinite.core.settings import Settings
from stayfinite.diagnosis.autopsies import proved_causes
from stayfinite.diagnosis.diagnose import judge
from stayfinite.diagnosis.diagnosis import Diagnosis, Source
from stayfinite.diagnosis.own_events import read_own_events
from stayfinite.diagnosis.own_steps import Refusals, refusals_in
from stayfinite.diagnosis.reading import described
from stayfinite.errors import StayfiniteError
from stayfinite.readers.configs import read_config
from stayfinite.readers.logs import read_log
from stayfinite.readers.runs.directory import EVENTS, RUN, STEPS


def diagnose_guarded(directory: Path) -> Diagnosis:
    """Judge steps.jsonl, events.jsonl, run.json and the autopsies of a run; what is not there is left out."""
    runs: list[RunSeries] = []
    settings = Settings()
    known: list[Finding] = proved_causes(directory)
    sources: list[Source] = []
    refusals: dict[str, Refusals] = {}
    steps, events, launch = (directory / name for name in (STEPS, EVENTS, RUN))
    if steps.is_file():
        runs += read_log(steps)
        if refused := refusals_in(steps):
            refusals[str(steps)] = refused
        sources.append(Source(path=str(steps), read_as="log", said=described(runs)))
    if events.is_file():
        findings, told = read_own_events(events)
        proved = {finding.cause for finding in known}
        known += [finding for finding in findings if finding.cause not in proved]
        runs += told
        sources.append(Source(path=str(events), read_as="log", said="events of a guarded run"))
    if launch.is_file():
        try:
            settings = read_config(launch)
            sources.append(Source(path=str(launch), read_as="config", said=f"{len(settings)} settings"))
        except StayfiniteError as error:
            sources.append(Source(path=str(launch), read_as="", said=getattr(error, "message", str(error))))
    return judge(runs, settings, sources, known, refusals)
