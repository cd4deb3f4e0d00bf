"""Judge checkpoints together: compare those of one run, and turn all facts into a result. Needs no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from stayfinite.core.finding import Finding
from stayfinite.readers.checkpoints.facts import CheckpointFacts
from stayfinite.readers.checkpoints.result import Scanned, ScanResult, listed
from stayfinite.readers.checkpoints.structure import read_structure
from stayfinite.readers.checkpoints.verdict import is_lora_b, judge, role_of


def judge_lineage(checkpoints: Sequence[Scanned]) -> None:
    """Record findings from comparing each checkpoint with earlier ones, oldest first."""
    families: dict[tuple[Path, str, str], list[Scanned]] = {}
    for each in checkpoints:
        if each.facts.step is not None:
            # A program names its checkpoints consistently; differently named ones come from another program.
            manner = re.sub(r"\d+", "0", each.facts.path.name)
            families.setdefault((each.facts.path.parent, each.facts.kind, manner), []).append(each)
    for family in families.values():
        _architectures(family)
        _adapters(family)
        _resumability(family)


def _architectures(family: list[Scanned]) -> None:
    whole = [(each, _shapes(each)) for each in family if not _is_damaged(each)]
    for (older, before), (newer, after) in pairwise(whole):
        if not before or not after or before == after:
            continue
        gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
        other = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
        lines = [f"{name} is {list(before[name])} before and {list(after[name])} after" for name in other]
        lines += [f"{name} was removed" for name in gone]
        lines += [f"{name} was added" for name in new]
        newer.record(
            "SF704",
            "warning",
            0.7,
            title=f"{newer.name} has another architecture than {older.name}: {len(lines)} tensors differ",
            evidence=listed(lines),
            fix="resume with the model that wrote it; give each training its own directory",
        )


def _adapters(family: list[Scanned]) -> None:
    trained: Scanned | None = None
    for each in family:
        halves = [values for _, place, values in each.tensors() if is_lora_b(place.name)]
        if not halves or any(values.bad for values in halves):
            continue
        if any(values.constant != 0 for values in halves):
            trained = each
        elif each.facts.step:
            after = f", after {trained.name} had a trained one" if trained else ""
            each.record(
                "SF705",
                "error" if trained else "warning",
                0.9 if trained else 0.6,
                title=f"{each.name} holds an untrained adapter{after}",
                evidence=(f"all {len(halves)} lora_B are exactly zero, so the adapter changes nothing",),
                fix=(
                    "load the adapter with is_trainable=True, do not add a new one, and give its parameters to "
                    "the optimizer"
                ),
            )


def _resumability(family: list[Scanned]) -> None:
    if not family or family[0].facts.kind != "transformers":
        return
    lacking = [each for each in family if not _has_optimizer(each)]
    some_have = len(lacking) < len(family)
    for each in lacking if some_have else lacking[-1:]:
        each.record(
            "SF701",
            "warning" if some_have else "info",
            0.7 if some_have else 0.2,
            title=f"{each.name} has no optimizer state: resuming restarts the moments",
            evidence=(
                "checkpoints next to it have one: it was probably not fully written"
                if some_have
                else "the others have none either: save_only_model=True does that",
            ),
            fix="resume from one that has an optimizer.pt, or lower the learning rate and warm up again",
        )


def _has_optimizer(scanned: Scanned) -> bool:
    names = [file.path for file in scanned.facts.files]
    return any(
        path.name.startswith("optimizer")
        or path.name.endswith("_optim_states.pt")
        or path.parent.name.startswith("optimizer")
        for path in names
    )


def _shapes(scanned: Scanned) -> dict[str, tuple[int, ...]]:
    return {
        place.name: place.shape
        for file in scanned.facts.files
        for place in file.places
        if place.origin is None and role_of(file.path.name, place.name) == "model"
    }


def _is_damaged(scanned: Scanned) -> bool:
    return bool(scanned.facts.troubles) or any(file.troubles for file in scanned.facts.files)


_RANKS = {"error": 0, "warning": 1, "info": 2}


def found_at(paths: Iterable[str | os.PathLike[str]]) -> list[Scanned]:
    """Read the structure of all checkpoints at the paths, without values. Raises OSError for a missing path."""
    return [Scanned(facts=facts) for facts in read_structure(map(Path, paths))]


def conclude(found: list[Scanned], *, quick: bool) -> ScanResult:
    """Judge each checkpoint alone and against the others. ``quick``: values were not read."""
    for each in found:
        judge(each)
    judge_lineage(found)
    result = ScanResult(checkpoints=tuple(found), findings=(), quick=quick)
    return replace(result, findings=tuple(_ranked(result)))


def _ranked(result: ScanResult) -> list[Finding]:
    """Sort by severity, then confidence, and append the newest good checkpoint to the fix for poisoned ones."""
    good = result.newest_good
    findings = []
    for each in result.checkpoints:
        for finding in each.findings:
            if finding.code in ("SF702", "SF703") and finding.severity == "error" and good is not None:
                finding = replace(finding, fix=f"{finding.fix}; the newest good one is {_called(good.facts)}")
            findings.append(finding)
    return sorted(findings, key=lambda finding: (_RANKS[finding.severity], -finding.confidence))


def _called(facts: CheckpointFacts) -> str:
    return str(facts.path) if facts.step is None else f"{facts.path} (step {facts.step})"
