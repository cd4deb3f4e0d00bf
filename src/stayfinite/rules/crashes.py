"""The error that ended a run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message, RunSeries
from stayfinite.rules.signs.reported_symptoms import by_a_person

NEAR = 3
"""Lines of a question around the error that it is about."""
WENT_ON = 10
"""After this many measurements, a crash was not the end."""
UNDER_WAY = 2
"""After this many measurements, whoever presses Ctrl+C stops a training."""
_HUNG = lazy_regex(
    r"\bwatchdog caught collective operation timeout|\bwatchdog got stuck|\bheartbeat monitor timed out|"
    r"\bran for \d+ milliseconds before timing out",
    re.IGNORECASE,
)
"""What ends a run whose ranks wait for each other."""
_CRASH = lazy_regex(
    r"^(?:\[?rank\s?\d+\]?:?\s*)?(?:E\s+)?(?:[\w.]+\.)?\w*(?:Error|Exception)\b(?::|$| \(| in )|"
    r"\bAssertion [`'\"]?.+ failed|\bfailed assertion\b|"
    r"^[\W_]*Traceback \(most recent call last\)|"
    r"CUDA error:|^\S+\.cuh?:\d+: |device-side assert|\bsegmentation fault|\bsegfault|core dumped|"
    r"^-{2,}> ?\d+ |^\s*Error in \w+\(|^\s*Evaluation error:|exited with exit code [1-9]|\bSIG(?:SEGV|ABRT|KILL|BUS)\b|"
    r"^\S+\.py: error: argument |^File \"[^\"]+\", line \d+, in \w+|\boom[-_ ]?kill|"
    r"\berror reported to coordinator\b|\bterminate called after throwing|^\s*Killed\s*$|\u5df2\u6740\u6b7b\s*$",
    re.IGNORECASE,
)
_BY_HAND = "KeyboardInterrupt"
_TOLD_CRASH = lazy_regex(
    r"^(?!(?i:.*\b(?:except|caught|catch|handled|ignor\w+|retr(?:y|ied|ying)|fixed|solved|avoid\w*|skip\w*|no|without|"
    r"instead|warning|would|used to|if)\b)).*(?:\b[A-Z]\w+(?:Error|Exception)\b(?:: \S|[.)]*$)|"
    r"\b(?i:training|it|run|script|program|process|job)\b[^.;]{0,60}\bcrash(?:es|ed)\b)"
)
"""An error inside a sentence, which counts where next to nothing was measured: a log's own stands on its own line."""


def crash_in(runs: Sequence[RunSeries], *, measured: bool) -> Message | None:
    """The first error that nothing was measured after.

    Arguments:
        measured: there are numbers, so that an error within a sentence is none of the log's.
    """
    messages = [(run, each) for run in runs for each in run.messages]
    own = (
        each
        for run, each in messages
        if (_CRASH.search(each.text) or hung(each)) and not (_went_on(run, each) or _by_hand(run, each))
    )
    told = (each for _, each in messages if not measured and _TOLD_CRASH.search(each.text))
    return next(own, None) or next(told, None)


def hung(crash: Message) -> bool:
    """Whether a run was ended because its ranks waited for each other."""
    return _HUNG.search(crash.text) is not None


def stopped_by_hand(run: RunSeries) -> bool:
    """Whether a run that was measured ended in Ctrl+C."""
    last = None if run.last is None else run.last.line
    ends = (each for each in run.messages if last is not None and max(each.line, each.last_line) > last)
    return any(each.text.endswith(_BY_HAND) and (each.text == _BY_HAND or _by_hand(run, each)) for each in ends)


def _went_on(run: RunSeries, crash: Message) -> bool:
    """Whether measurements follow a crash: it was caught, or the run was resumed."""
    last = max(crash.line, crash.last_line)
    quoted = not any(point.line < crash.line for point in run.points) and any(
        by_a_person(message.text) for message in run.messages if message.line <= last + NEAR
    )  # a question names its error first, and shows its log then
    return not quoted and sum(point.line > last for point in run.points) >= WENT_ON


def _by_hand(run: RunSeries, crash: Message) -> bool:
    """Whether each traceback of a run that was measured ends in Ctrl-C, and what prints at the exit."""
    if run.points_seen < UNDER_WAY:
        return False
    if crash.text.startswith("Error in atexit"):
        return True
    interrupts = sum(each.count for each in run.messages if each.text == _BY_HAND)
    return crash.text.startswith("Traceback") and (crash.text.endswith(_BY_HAND) or interrupts >= crash.count > 0)
