"""How a run is, in one word with its reason: what the rules say of its numbers, and what the guard had to do.

=========  ==========================================================================================================
critical   it has stopped or crashed (Ctrl-C is neither), the last step that touched the weights was not finite, or a
           rung of the ladder was taken and steps are still refused
sick  the rules see trouble in the steps that touched the weights, a rung was taken lately, or several steps in
           a row were refused
warning    steps were refused lately, a rule is sure of a cause that does not show yet, or no step has come for long
unknown    nothing was measured yet, or the numbers look odd and no rule takes that for a fault
healthy    none of these. Steps that the guard refused long ago do no harm and are only mentioned
=========  ==========================================================================================================
"""

from __future__ import annotations

from stayfinite.core.durations import in_words
from stayfinite.core.finding import Finding
from stayfinite.core.run_status import Health, HealthWord
from stayfinite.diagnosis.autopsies import AUTOPSY
from stayfinite.diagnosis.course import Course
from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.readers.runs.directory import EVENTS

SURE = 0.5
"""A cause without visible trouble is told from this confidence on."""

NAMED = 0.3
"""A cause of visible trouble is named from this confidence on."""

STUCK = 3
"""So many refused steps in a row are no single bad batch any more."""

CRASHED = frozenset({"the run crashed", "the run hung"})


def health_of(found: Diagnosis | None, course: Course) -> Health:
    """The word for a run: ``found`` is the rules' judgment of the steps that touched its weights."""
    cause = _cause(found, course)
    fix = cause.fix if cause is not None else ""
    because = f"; {_named(cause)}" if cause is not None else ""
    # What looks like trouble may be none, such as GRPO's loss of 0: then no rule fires, and it alarms nobody.
    trouble = "; ".join(found.trouble) if found is not None and found.verdict == "sick" else ""
    if course.ended in ("stopped", "failed") and not course.by_hand:
        return _say(HealthWord.CRITICAL, (course.ended_because or f"the run {course.ended}") + because, fix)
    if course.bad_now:
        what = trouble or "the newest step is NaN or inf, and was applied to the weights"
        return _say(HealthWord.CRITICAL, f"{what}{because}", fix)
    if found is not None and CRASHED.intersection(found.trouble):
        return _say(HealthWord.CRITICAL, f"{'; '.join(found.trouble)}{because}", fix)
    if course.rung and course.in_a_row >= STUCK:
        rung = f"{course.rung} at step {_at(course.rung_step)}, and steps are still refused ({course.last_code})"
        return _say(HealthWord.CRITICAL, rung + because, fix)
    if trouble:
        return _say(HealthWord.SICK, trouble + because, fix)
    if course.in_a_row >= STUCK:
        row = f"{course.in_a_row} steps in a row were refused ({course.last_code})"
        return _say(HealthWord.SICK, row + because, fix)
    if course.rung:
        return _say(HealthWord.SICK, f"{course.rung} at step {_at(course.rung_step)}{because}", fix)
    mild = _mild(course, cause, because, fix)
    if mild.word is HealthWord.HEALTHY and found is not None and found.trouble:
        return _say(HealthWord.UNKNOWN, f"{'; '.join(found.trouble)}; no known cause", "")
    return mild


def _mild(course: Course, cause: Finding | None, because: str, fix: str) -> Health:
    silence = "" if course.silent_seconds is None else f"no step for {in_words(course.silent_seconds)}"
    if course.lately:
        plural = "s were" if course.lately > 1 else " was"
        last = f"the last at step {_at(course.last_refused)}, {course.last_code}"
        refusals = f"{course.lately} step{plural} refused lately, {last}"
        return _say(HealthWord.WARNING, ", ".join(filter(None, (silence, refusals))) + because, fix)
    if silence:
        return _say(HealthWord.WARNING, silence, "check that the process is running and what it waits for")
    if cause is not None and cause.severity != "info" and not _is_history(cause, course):
        return _say(HealthWord.WARNING, _named(cause), fix)
    if not course.seen:
        return _say(HealthWord.UNKNOWN, "no step yet", "")
    past = "; interrupted" if course.by_hand else ""
    if course.refused:
        searched = course.last_refused is None
        when = " while the loss scale was searched" if searched else f", the last at step {_at(course.last_refused)}"
        past = f"; {course.refused:,} refused{when}{past}"
    return _say(HealthWord.HEALTHY, f"no problem in {course.seen:,} step{'s' if course.seen > 1 else ''}{past}", "")


def _cause(found: Diagnosis | None, course: Course) -> Finding | None:
    """The likeliest cause, of what the rules say and what is known."""
    guess = worth_naming(found)
    known = max(course.known, key=lambda finding: finding.confidence, default=None)
    return max(filter(None, (guess, known)), key=lambda finding: finding.confidence, default=None)


def worth_naming(found: Diagnosis | None) -> Finding | None:
    """The likeliest cause, unless it is a mere guess."""
    guess = None if found is None else found.cause
    if found is None or guess is None or guess.confidence < (NAMED if found.trouble else SURE):
        return None
    return guess


def _is_history(cause: Finding, course: Course) -> bool:
    """An autopsy explains refused steps: once they are history, so is their cause."""
    return (
        cause in course.known and bool(course.refused) and not course.lately and cause.where.endswith((AUTOPSY, EVENTS))
    )


def _named(cause: Finding) -> str:
    return f"{cause.code} {cause.cause} ({cause.confidence:.0%})"


def _at(step: int | None) -> str:
    return "?" if step is None else f"{step:,}"


def _say(word: HealthWord, reason: str, fix: str) -> Health:
    return Health(word=word, reason=reason, fix=fix)
