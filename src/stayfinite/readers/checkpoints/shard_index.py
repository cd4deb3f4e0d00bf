"""Check that the shards of a model are complete and match their index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts, Trouble, TroubleKind
from stayfinite.readers.checkpoints.steps import read_json

_NUMBERED = lazy_regex(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.\w+)")


def check_index(index: Path, files: Mapping[str, FileFacts], into: CheckpointFacts) -> None:
    """Compare a ``model.safetensors.index.json`` with the files next to it, and report problems to ``into``."""
    record = read_json(index)
    mapping = record.get("weight_map") if isinstance(record, dict) else None
    if not isinstance(mapping, dict) or not all(isinstance(each, str) for each in mapping.values()):
        _complain(into, "damaged", f"{index.name} is damaged: it has no weight_map")
        return
    expected: dict[str, set[str]] = {}
    for name, file in mapping.items():
        expected.setdefault(file, set()).add(name)
    for file, names in sorted(expected.items()):
        if file not in files:
            first = min(names)
            _complain(
                into, "incomplete", f"{file} is missing; {index.name} lists {len(names)} tensors in it, first {first}"
            )
        elif not files[file].troubles:
            _compare(index.name, file, names, {place.name for place in files[file].places}, into)
    _check_total(index.name, record.get("metadata"), [files[file] for file in expected if file in files], into)


def check_numbers(files: Mapping[str, FileFacts], indexed: bool, into: CheckpointFacts) -> None:
    """Report missing shards of files numbered "3 of 5", unless an index was checked."""
    groups: dict[tuple[str, str, str], set[int]] = {}
    for name in files:
        if match := _NUMBERED.fullmatch(name):
            groups.setdefault((match["stem"], match["count"], match["suffix"]), set()).add(int(match["number"]))
    for (stem, count, suffix), numbers in groups.items():
        # transformers counts from 1, others from 0.
        first = 0 if 0 in numbers else 1
        missing = [number for number in range(first, first + min(int(count), 100_000)) if number not in numbers]
        if missing and not indexed:
            name = f"{stem}-{missing[0]:05d}-of-{count}{suffix}"
            _complain(into, "incomplete", f"{len(missing)} of {int(count)} shards are missing, first {name}")
        elif stem == "model" and suffix == ".safetensors" and not indexed and into.kind == "transformers":
            _complain(
                into, "incomplete", "model.safetensors.index.json is missing: tensors cannot be assigned to shards"
            )


def _compare(index: str, file: str, expected: set[str], there: set[str], into: CheckpointFacts) -> None:
    if missing := sorted(expected - there):
        text = f"{file} lacks {len(missing)} tensors listed in {index}, first {missing[0]}"
        _complain(into, "incomplete", text)
    if extra := sorted(there - expected):
        text = f"{file} holds {len(extra)} tensors not listed in {index}, first {extra[0]}"
        _complain(into, "incomplete", text)


def _check_total(index: str, metadata: object, files: list[FileFacts], into: CheckpointFacts) -> None:
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, bool) or not isinstance(total, int | float) or not 0 <= total < 1 << 62:
        return
    if any(file.format != "safetensors" for file in files):
        return
    found = sum(place.nbytes for file in files for place in file.places)
    if total != found and not into.troubles and not any(file.troubles for file in files):
        # Loaders ignore this number, and converters often leave it outdated.
        _complain(into, "note", f"{index} says {total:,} bytes in total, the tensors have {found:,}")


def _complain(into: CheckpointFacts, kind: TroubleKind, text: str) -> None:
    into.troubles.append(Trouble(kind=kind, text=text))
