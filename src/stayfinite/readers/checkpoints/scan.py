"""Look through checkpoints: their structure, and unless that is to be quick, every number in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from stayfinite.core.finding import Finding
from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts
from stayfinite.readers.checkpoints.hashes import check_hash
from stayfinite.readers.checkpoints.lineage import judge_lineage
from stayfinite.readers.checkpoints.result import Scanned, ScanResult
from stayfinite.readers.checkpoints.structure import read_structure
from stayfinite.readers.checkpoints.verdict import judge

Progress = Callable[[int, int], None]
"""``progress(done, total)`` in bytes; called from several threads."""

_RANKS = {"error": 0, "warning": 1, "info": 2}


def scan(
    paths: Iterable[str | os.PathLike[str]],
    *,
    quick: bool = False,
    hashes: bool = True,
    progress: Progress | None = None,
) -> ScanResult:
    """Look through all checkpoints at the paths.

    Arguments:
        paths: files and directories.
        quick: leave the numbers and hashes alone; needs no torch.
        hashes: compare SHA-256 sums where a manifest or a list beside a file has them.
        progress: is told how far it has come.

    Raises:
        OSError: a path is not there.
    """
    found = [Scanned(facts=facts) for facts in read_structure(map(Path, paths))]
    if not quick:
        _look(found, hashes, progress)
    for each in found:
        each.findings = judge(each)
    for each, finding in judge_lineage(found):
        each.findings.append(finding)
    result = ScanResult(checkpoints=tuple(found), findings=(), quick=quick)
    return replace(result, findings=tuple(_ranked(result)))


def _look(found: list[Scanned], hashes: bool, progress: Progress | None) -> None:
    from stayfinite.readers.checkpoints.values.streaming import look_at, readable

    files = [file for each in found for file in each.facts.files]
    hashed = [file for file in files if file.sha256 is not None and hashes]
    total = sum(place.nbytes for file in files for place in readable(file)) + sum(file.size for file in hashed)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(min(done, total), total)

    _hash(hashed, on_bytes)
    for each in found:
        each.values = look_at(each.facts.files, on_bytes)


def _hash(files: list[FileFacts], on_bytes: Callable[[int], None]) -> None:
    if files:
        with ThreadPoolExecutor(max_workers=min(len(files), os.cpu_count() or 1)) as pool:
            list(pool.map(lambda file: check_hash(file, on_bytes), files))


def _ranked(result: ScanResult) -> list[Finding]:
    """Gravest first; of equal ones, the checkpoint in which it began first. Poison names the way back."""
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
