"""``diagnose(path, ...)``: what is lying around -> what went wrong. Needs no torch, executes nothing that it reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stayfinite.core.finding import Finding
from stayfinite.core.series import RunSeries
from stayfinite.core.settings import Settings
from stayfinite.diagnosis.autopsies import AUTOPSY
from stayfinite.diagnosis.diagnosis import Diagnosis, Source, Verdict
from stayfinite.diagnosis.own_steps import Refusals, as_judged, refusals_in_rows, unexplained
from stayfinite.diagnosis.reading import Progress, Reading, read_guarded, read_paths
from stayfinite.diagnosis.retold import retold_lines, without
from stayfinite.diagnosis.telling import Told, understand_told
from stayfinite.diagnosis.weighing import WEAK, possibilities, weigh
from stayfinite.readers.configs import faults_in_lines, settings_in_text
from stayfinite.rules.calibration import calibrated
from stayfinite.rules.context import Context
from stayfinite.rules.differential import differential
from stayfinite.rules.facts import Facts
from stayfinite.rules.ranking import LEAST, place, rank
from stayfinite.rules.registry import all_rules

LEAST_ALARM = 0.3
"""Confidence in a cause that numbers without trouble take. Of 118 known runs that were sick and showed none, each cause
was surer; of healthy ones, a tenth was usual."""


def diagnose(
    path: str | os.PathLike[str],
    *more_paths: str | os.PathLike[str],
    progress: Progress | None = None,
    tell: Sequence[str] = (),
) -> Diagnosis:
    """Read logs, configs and directories of one run, and name the likeliest causes of its trouble.

    Examples:
        >>> stayfinite.diagnose("train.log").trouble
        ['the gradient norm is NaN or inf', 'the loss is 0']
        >>> stayfinite.diagnose("train.log", tell=["precision=fp16"]).cause.cause
        'fp16-overflow'

    Arguments:
        path: a file or a directory; which kind of log or config it is, is found out. `-` is standard input.
        more_paths: others of the same run.
        progress: told how far reading has come.
        tell: what no file says, as `precision=fp16`, or how an experiment went, as `bf16=fine`.

    Raises:
        UsageError: when nothing of it could be read, a directory holds several runs, or something told is no
            `name=value`.
    """
    told = understand_told(tell)
    return judge_reading(read_paths([Path(given) for given in (path, *more_paths)], progress, of_one_run=True), told)


def diagnose_guarded(directory: Path) -> Diagnosis:
    """Judge a run by what the guard itself has written; what is not there is left out."""
    return judge_reading(read_guarded(directory))


def judge_reading(reading: Reading, told: Told | None = None) -> Diagnosis:
    """Let the rules judge files that were read, and what was told."""
    return judge(reading.runs, reading.settings, reading.sources, reading.known, reading.refusals, told)


def facts_of(reading: Reading, told: Told | None = None) -> Facts:
    """What the rules would judge."""
    return Facts(reading.runs, _setup(reading.runs, reading.settings, told or Told()))


def context_of(reading: Reading, told: Told) -> Context:
    """What is known of the set-up: model, precision, card."""
    return facts_of(reading, told).context


def judge(
    runs: Sequence[RunSeries],
    settings: Settings,
    sources: Sequence[Source] = (),
    known: Sequence[Finding] = (),
    refusals: Mapping[str, Refusals] | None = None,
    told: Told | None = None,
) -> Diagnosis:
    """Let the rules judge what was read.

    Arguments:
        runs: the measurements.
        settings: beside them.
        sources: what was read, for telling.
        known: what was seen or proved already.
        refusals: by source, what a guard has refused: no symptom of the run, and judged only where the run never came
            back from it. Where no autopsy explains it, the rules may guess why if it was more than single bad batches;
            else values that were not finite are a finding without a cause.
        told: what somebody knows besides.
    """
    told = told or Told()
    in_rows = {run.source: found for run in runs if (found := refusals_in_rows(run))}
    refused = in_rows | dict(refusals or {})
    setup = _setup(runs, settings, told)
    facts = Facts(_to_judge(runs, refused), setup, tried=told.tried, complaints=told.symptoms)
    lasting = any(each.lasting for each in refused.values())
    explained = any(finding.where.endswith(AUTOPSY) for finding in known)
    guessed = facts
    if lasting and not explained:
        guessed = Facts(_to_judge(runs, refused, whole=True), setup, tried=told.tried, complaints=told.symptoms)
    open_questions = [] if lasting or explained else [unexplained(source, each) for source, each in refused.items()]
    ranked = rank(guessed, all_rules(), least=LEAST if explained else WEAK)
    from_text = [replace(each, confidence=calibrated(each.confidence)) for each in ranked]
    if not explained:
        from_text = weigh(from_text, guessed)
    if facts.symptoms.points and not (facts.symptoms.trouble or lasting):
        from_text = _worth_an_alarm(from_text)
    from_text = _shown_by_code_first(from_text, setup)
    stopped = any(each.stopped is not None for each in refused.values())
    # A run whose finite loss diverges besides has another cause than its proved bad steps.
    proof_decides = explained and (stopped or facts.symptoms.non_finite or not facts.symptoms.trouble)
    findings = with_known(from_text, [*known, *filter(None, open_questions)], proved_first=proof_decides)
    verdict: Verdict = "unknown"
    lost = facts.symptoms.trouble and not facts.symptoms.doubtful
    if lost or any(finding.severity != "info" for finding in findings):
        rescued = not lost and not lasting and any(each.codes for each in refused.values())
        verdict = "warning" if rescued else "sick"
    elif facts.symptoms.healthy and not lasting:
        verdict = "healthy"
    if not (findings or refused or lost):
        findings = possibilities(facts)
    return Diagnosis(
        verdict=verdict,
        findings=findings,
        trouble=[*facts.symptoms.story, *_signs(facts, findings)],
        refused=[
            each.in_words() + ("" if explained or each.in_rows else "; cause not captured: pass forward= to Guard")
            for each in refused.values()
            if each.codes
        ],
        sources=sources,
        differential=differential(findings, guessed) if verdict == "sick" and not proof_decides else None,
        runs=runs,
    )


def _shown_by_code_first(findings: Sequence[Finding], setup: Settings) -> list[Finding]:
    """What a whole program shows comes before what its numbers suggest."""
    shown = {each.cause for each in setup.code_faults if each.whole and each.sure and not each.mild}
    surest = max((each.confidence for each in findings), default=0.0)
    raised = [replace(each, confidence=surest) if each.cause in shown else each for each in findings]
    return sorted(raised, key=lambda each: each.cause not in shown)


def _worth_an_alarm(findings: Sequence[Finding]) -> list[Finding]:
    """The findings on numbers that show nothing: a guess among many is no reason for an alarm."""
    surest = max((each.confidence for each in findings if each.severity != "info"), default=0.0)
    return [each for each in findings if each.severity == "info" or surest >= LEAST_ALARM]


def _signs(facts: Facts, findings: Sequence[Finding]) -> list[str]:
    """What signals of post-training show, where that is the likeliest cause."""
    seen = facts.post_training.get(findings[0].cause) if findings else None
    return [] if seen is None else [seen.sign.text]


def _setup(runs: Sequence[RunSeries], settings: Settings, told: Told) -> Settings:
    """What was told, what the files say, and what the logs say of themselves."""
    inside = settings_in_text((message.where, message.text) for run in runs for message in run.messages)
    quoted = [fault for run in runs for fault in faults_in_lines(run.opening, run.source)]
    return told.settings + settings + inside + Settings(code_faults=quoted)


def _to_judge(runs: Sequence[RunSeries], refused: Mapping[str, Refusals], *, whole: bool = False) -> list[RunSeries]:
    by_steps = [each for each in refused.values() if not each.in_rows]
    judged = []
    for run in runs:
        if run.source in refused:
            judged.append(as_judged(run, refused[run.source], whole=whole))
        else:
            told_again = set() if whole else retold_lines(run, by_steps)
            judged.append(without(run, told_again) if told_again else run)
    return judged


def with_known(findings: list[Finding], known: Sequence[Finding], *, proved_first: bool = False) -> list[Finding]:
    """Both together, ranked: what was seen or proved stands for a rule's guess of the same cause, no less sure."""
    certain = {finding.cause for finding in known}
    guessed = {finding.cause: finding.confidence for finding in findings}
    both = [replace(each, confidence=max(each.confidence, guessed.get(each.cause, 0.0))) for each in known]
    both += [finding for finding in findings if finding.cause not in certain]
    ranked = sorted(both, key=place)
    return sorted(ranked, key=lambda finding: not finding.where.endswith(AUTOPSY)) if proved_first else ranked
