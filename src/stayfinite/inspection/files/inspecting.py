"""`stayfinite check FILES`: predict failures from the files alone; nothing is executed."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stayfinite.core.finding import Finding, Place
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting, Settings
from stayfinite.errors import UsageError
from stayfinite.inspection.files.card import look_at_card, look_at_memory_savers
from stayfinite.inspection.files.evaluation import look_at_evaluation
from stayfinite.inspection.files.flags import look_at_flags
from stayfinite.inspection.files.learning_rate import look_at_learning_rate
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan
from stayfinite.inspection.files.post_training import look_at_post_training
from stayfinite.inspection.files.precision import look_at_eight_bits, look_at_precision
from stayfinite.inspection.files.schedule import look_at_clipping, look_at_schedule
from stayfinite.inspection.files.sizes import look_at_batches, look_at_lengths
from stayfinite.inspection.files.sources import COMMAND, MEND, Source, broken_in, missing_script, read_sources
from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.notes import CONTRADICTION, Line, Notes, ruled
from stayfinite.inspection.project import BadIgnore, Remark, remarks_in, without_ignored
from stayfinite.readers.configs.spans import Span, spans_of
from stayfinite.rules.cards import card_asked_for
from stayfinite.rules.facts import Facts
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import rule_of

_NUMBERED = lazy_regex(r"(?P<path>.+):(?P<line>\d+)$", re.DOTALL)


def placed(findings: Iterable[Finding], sources: Sequence[Source]) -> list[Finding]:
    """Add line and columns of the fix to findings that name a file."""
    texts = {source.name: source.text.split("\n") for source in sources if source.name != COMMAND}
    by_place: dict[str, list[Setting]] = {}
    for source in sources:
        for setting in source.settings:
            by_place.setdefault(setting.where, []).append(setting)
    return [replace(each, place=_place_of(each, texts, by_place)) for each in findings]


def _place_of(finding: Finding, texts: dict[str, list[str]], settings: dict[str, list[Setting]]) -> Place | None:
    numbered = _NUMBERED.match(finding.where)
    path = numbered["path"] if numbered else finding.where
    if path not in texts:
        return None
    line = int(numbered["line"]) if numbered else 1
    text = texts[path][line - 1] if 0 < line <= len(texts[path]) else ""
    whole = Span(len(text) - len(text.lstrip()), max(len(text.rstrip()), 1))
    span = _span_meant(text, finding, settings.get(finding.where, [])) or whole
    return Place(path=path, line=max(line, 1), column=span.start + 1, end_column=max(span.end, span.start + 1) + 1)


def _span_meant(text: str, finding: Finding, settings: Sequence[Setting]) -> Span | None:
    """The span of the value that the evidence refers to; of the name if the name is wrong."""
    evidence = " ".join(finding.evidence)
    mentioned = [each for each in settings if re.search(rf"(?<![\w.]){re.escape(each.name)}(?!\w)", evidence)]
    mentioned = mentioned or [each for each in settings if re.search(rf"\b{re.escape(last_step(each))}\b", evidence)]
    for setting in mentioned or settings[:1]:
        spans = spans_of(text, setting.name)
        if spans is not None:
            return spans[0] if finding.cause == "unknown-setting" else spans[1]
    return None


CAUSES = (
    "no-zero-grad", "double-step", "accumulation-unscaled", "softmax-before-cross-entropy",
    "probability-loss-on-logits", "softmax-axis", "flipped-sign", "where-nan-branch", "loss-formula-singularity",
    "naive-exp", "wrong-reduction", "attention-unscaled", "params-not-in-optimizer",
)  # fmt: skip
"""Rules that read code. They explain failures; before a launch only near certainty counts."""

FROM_LOOPS = (
    "clip-before-unscale", "no-zero-grad", "accumulation-unscaled", "detached-loss", "step-missing",
    "cleared-before-step", "softmax-before-cross-entropy", "loss-formula-singularity", "where-nan-branch",
    "wrong-mode", "metric-not-reset", "metric-impossible", "loss-broadcast", "probability-loss-on-logits",
    "softmax-axis", "flipped-sign", "labels-shuffled", "splits-scaled-differently", "unshuffled", "duplicate-rows",
    "causal-leak", "constant-feature", "bad-init", "dead-units", "bad-data-row", "samples-leak",
    "label-out-of-range", "metric-stuck", "target-out-of-step", "params-frozen",
    "double-step", "params-not-in-optimizer", "unregistered-module", "lr-schedule-bug", "lr-zero", "lr-too-low",
    "rank-desync",
    "scaler-missing", "no-clipping", "attention-unscaled", "attention-fully-masked-row", "naive-exp", "wrong-reduction",
    "train-val-overlap", "token-id-out-of-range", "all-labels-masked", "step-fails", "workers-alike",
)  # fmt: skip
"""Faults that the syntax tree of a loop shows; the words of a program, which logs quote, prove them less."""

CERTAIN = 0.7


def look_at_code(plan: Plan, notes: Notes) -> list[Finding]:
    """Run the rules that read code; return their findings and add a check list line."""
    settings = sum((source.settings for source in plan.scripts), Settings())
    lines = len(settings.notes)
    notes.check(
        "Code",
        "training loop and loss",
        *dict.fromkeys((*FROM_LOOPS, *CAUSES)),
        seen=f"{lines} lines of loop and loss" if lines else "",
        otherwise="no training loop or loss in these files" if plan.scripts else "no script given",
    )
    if not lines and not settings.code_faults:
        return []
    shown = Settings(code_faults=[each for each in settings.code_faults if each.where not in plan.switched_off])
    found = rank(Facts(settings=Settings(settings, settings.notes)), [rule_of(slug) for slug in CAUSES])
    found += rank(Facts(settings=shown), [rule_of(slug) for slug in FROM_LOOPS])
    by_cause: dict[str, Finding] = {}
    for finding in sorted(found, key=lambda each: -each.confidence):
        by_cause.setdefault(finding.cause, finding)
    sure = [finding for finding in by_cause.values() if finding.confidence >= CERTAIN]
    return [finding for finding in sure if not (finding.cause in _BY_NAME and _imports_a_namesake(plan))]


_BY_NAME = frozenset({"probability-loss-on-logits", "softmax-before-cross-entropy"})
_NAMESAKE = lazy_regex(r"from (?!torch)[\w.]+ import [^\n]*\b(?:nll_loss|cross_entropy|binary_cross_entropy)\b")


def _imports_a_namesake(plan: Plan) -> bool:
    """Whether a loss has the name of torch's and another module's meaning."""
    return any(_NAMESAKE.search(source.text) for source in plan.scripts)


TOPICS = (
    look_at_precision,
    look_at_eight_bits,
    look_at_learning_rate,
    look_at_schedule,
    look_at_clipping,
    look_at_batches,
    look_at_memory_savers,
    look_at_lengths,
    look_at_post_training,
    look_at_evaluation,
    look_at_flags,
    look_at_card,
)
"""In check list order."""


def inspect_files(
    arguments: Sequence[str], *, gpu: str | None = None, instead: Mapping[str, str] | None = None
) -> Inspection:
    """Check the files and commands of one run. The command's values take precedence, then the later file's.

    ``instead`` replaces the text of files. Raises UsageError for unreadable files and unknown GPUs.
    """
    card = None if gpu is None else card_asked_for(gpu)
    plan = Plan(sources=read_sources(arguments, card, instead), card=card)
    if not plan.settings and not broken_in(plan.sources):
        names = ", ".join(source.name for source in plan.sources)
        raise UsageError(f"no settings found in {names}", fix="name the config, script or command that starts the run")
    notes = Notes()
    for source in plan.sources:
        notes.heading(source.name, _described(source))
        missing = missing_script(source.text, source.settings) if source.kind == "command" else ""
        if missing:
            notes.heading(missing, "not found; cannot check its flags and defaults")
    _say_overruled(plan, notes)
    _look_at_wholeness(plan, notes)
    for look in TOPICS:
        look(plan, notes)
    in_code = look_at_code(plan, notes)
    # Rules judge only the observations: a comment in a script is not evidence before a launch.
    found = conclude(notes)
    findings = placed([*found.findings, *in_code], plan.sources)
    found = replace(found, lines=ruled(notes.checks, findings), findings=findings)
    found = without_ignored(found, remarks=[each for source in plan.sources for each in _remarks(source)])
    return replace(found, findings=placed(found.findings, plan.sources))


def _remarks(source: Source) -> list[Remark]:
    return [] if source.kind in ("command", "notebook") else remarks_in(source.text, source.name, source.kind)


def _described(source: Source) -> str:
    kind = "read as a command" if source.kind == "command" else source.kind
    named = f", named by {source.named_by}" if source.named_by else ""
    count = len(source.settings)
    return f"{kind}, {count} setting{'' if count == 1 else 's'}{named}"


def _look_at_wholeness(plan: Plan, notes: Notes) -> None:
    """Files that their own parser rejects: a launch fails on them."""
    broken = broken_in(plan.sources)
    for each in broken:
        if each.in_a_cell:
            notes.remark("plan.broken_cells", (each.text, each.where, MEND))
        else:
            notes.contradict(each.text, each.where, MEND)
    if broken:
        notes.check("Files", "file contents", CONTRADICTION)


def _say_overruled(plan: Plan, notes: Notes) -> None:
    """Say which value counts if several files set the same name."""
    given = {source.name for source in plan.sources if not source.named_by}
    first: dict[str, Setting] = {}
    overruled = []
    for setting in plan.settings:
        if setting.source not in given or setting.kind == "default" or isinstance(setting.value, Expression):
            continue
        counts = first.setdefault(setting.plain, setting)
        if counts.source != setting.source and counts.value != setting.value:
            overruled.append(f"{counts.name} {counts.value} ({counts.where}) over {setting.value} ({setting.where})")
    if overruled:
        notes.heading("overruled", "; ".join(overruled[:6]) + (" ..." if len(overruled) > 6 else ""))


def inspect_each(runs: Sequence[Sequence[str]], look: Callable[[Sequence[str]], Inspection]) -> Inspection:
    """Inspect each run. Files that are not a training are skipped, with the reason.

    Raises UsageError if a file does not exist or an ignore comment is invalid.
    """
    parts: list[Inspection] = []
    for run in runs:
        name = " ".join(run)
        try:
            found = look(run)
        except BadIgnore:
            raise  # the user must correct an invalid ignore comment
        except UsageError as error:
            if any(len(each.split()) == 1 and not os.path.lexists(each) for each in run):
                raise  # otherwise a misspelled name would always pass
            skipped = Line(status="skip", group=name, title="not checked", seen=error.message)
            parts.append(Inspection(banner=[], lines=[skipped], findings=[]))
            continue
        lines = [replace(line, group=f"{name}: {line.group}") for line in found.lines] if len(runs) > 1 else found.lines
        parts.append(replace(found, lines=lines))
    names = ("lines", "findings", "tables", "ignored", "edits")
    joined: dict[str, Any] = {name: [each for part in parts for each in getattr(part, name)] for name in names}
    return Inspection(banner=list(dict(pair for part in parts for pair in part.banner).items()), **joined)
