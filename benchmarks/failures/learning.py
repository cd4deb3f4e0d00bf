"""Learns from the known logs which causes go with what (``stayfinite/rules/experience/weights.json``).

    python -m benchmarks.failures.learning              # writes the weights
    python -m benchmarks.failures.learning --pages      # only writes the words of the rules' pages (pages.json)
    python -m benchmarks.failures.learning --leave-out  # how well it does on each set when made of the others

A logistic regression with a quadratic penalty: one class a cause, made of all sick cases, on top of what the words of
the rules' own pages say (`likely.prior`), which know what no case has had yet.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.failures.logs import reading as logs
from stayfinite import diagnose
from stayfinite.diagnosis.diagnose import facts_of
from stayfinite.diagnosis.reading import read_paths
from stayfinite.errors import StayfiniteError
from stayfinite.rules.experience import likely
from stayfinite.rules.experience.features import features
from stayfinite.rules.experience.likely import Weights, from_json, judged, pages_count, prior
from stayfinite.rules.experience.pages import words_of_pages
from stayfinite.rules.registry import all_rules

PENALTY = 0.5
WORDS_COUNT = 0.5
"""What a word counts, over a fact."""
LEAST_CASES, LEAST_SETS = 4, 2
"""In so many a word has to occur."""
MOST_CASES = 0.4
"""A word that more than this share has says nothing."""
LEAST_WEIGHT = 0.06
"""Weights below this are left out."""
WRITTEN = Path(likely.__file__).with_name("weights.json")


@dataclass(frozen=True)
class Example:
    """A case."""

    set: str
    name: str
    cause: str
    accepted: frozenset[str]
    found: frozenset[str]
    pages: float
    """What the rules' pages count for it."""


def examples() -> Iterator[Example]:
    """Every sick case that is known."""
    for folder in sorted(path for path in (logs.FOLDER / "known").iterdir() if path.is_dir()):
        for case in logs.read_set("known", folder.name):
            if case.harmless:
                continue
            with tempfile.TemporaryDirectory() as place:
                try:
                    facts = facts_of(read_paths(case.write(Path(place))))
                except StayfiniteError:
                    continue
            accepted = frozenset(case.accepted)
            yield Example(folder.name, case.name, case.cause, accepted, frozenset(features(facts)), pages_count(facts))


def learn(cases: Sequence[Example]) -> Weights:
    """A model of these."""
    counted = Counter(name for case in cases for name in case.found)
    sets = defaultdict(set)
    for case in cases:
        for name in case.found:
            sets[name].add(case.set)
    names = [
        name for name in sorted(counted)
        if " " in name or (
            counted[name] >= LEAST_CASES and len(sets[name]) >= LEAST_SETS and counted[name] <= MOST_CASES * len(cases)
        )
    ]  # fmt: skip
    causes = sorted(rule.slug for rule in all_rules() if rule.severity != "info")
    scale = torch.tensor([1.0 if " " in name else WORDS_COUNT for name in names])
    given = torch.tensor([[float(name in case.found) for name in names] for case in cases]) * scale
    right = torch.tensor([causes.index(case.cause) for case in cases])
    described = torch.tensor(
        [[said[cause] for cause in causes] for said in (prior(case.found, case.pages) for case in cases)]
    )
    weight = torch.zeros(len(names), len(causes), requires_grad=True)
    bias = torch.zeros(len(causes), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=80, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        surprise = torch.nn.functional.cross_entropy(given @ weight + bias + described, right, reduction="sum")
        loss = surprise + PENALTY * (weight.square().sum() + bias.square().sum())
        loss.backward()
        return loss

    optimizer.step(closure)
    return from_json(kept(causes, names, (weight.detach() * scale[:, None]).tolist(), bias.tolist()))


def kept(
    causes: list[str], names: list[str], weight: list[list[float]], bias: list[float]
) -> dict[str, dict[str, Any]]:
    """As it is written: small weights left out, the others with two digits."""
    rows = {}
    for name, row in zip(names, weight, strict=True):
        flat = [part for at, each in enumerate(row) if abs(each) >= LEAST_WEIGHT for part in (at, round(each, 2))]
        if flat:
            rows[name] = flat
    return {"bias": {cause: round(each, 2) for cause, each in zip(causes, bias, strict=True)}, "features": rows}


def to_json(model: Weights) -> dict[str, dict[str, Any]]:
    """What `from_json` reads."""
    at = {cause: index for index, cause in enumerate(model.bias)}
    rows = {
        name: [part for cause, each in row.items() for part in (at[cause], each)]
        for name, row in model.by_feature.items()
    }
    return {"bias": dict(model.bias), "features": rows}


def left_out(cases: Sequence[Example]) -> None:
    """Print how often causes are right on each set when experience is made of the others, alone and with the rules."""
    for name in sorted({case.set for case in cases}):
        model = learn([case for case in cases if case.set != name])
        asked = [case for case in cases if case.set == name]
        alone = _score(
            [(case.accepted, [each.cause for each in judged(case.found, model, case.pages)]) for case in asked]
        )
        sick = [case for case in logs.read_set("known", name) if not case.harmless]
        with patch.object(likely, "weights", return_value=model):
            together = _score(map(_told, sick))
        print(f"{name:12} {len(asked):4} cases; alone {alone}; with the rules {together}", flush=True)


def _told(case: logs.LogCase) -> tuple[Collection[str], list[str]]:
    with tempfile.TemporaryDirectory() as place:
        said = diagnose(*case.write(Path(place)))
    return case.accepted, [each.cause for each in said.findings if each.severity != "info"]


def _score(said: Iterable[tuple[Collection[str], list[str]]]) -> str:
    right = [
        (bool(set(causes[:1]) & set(accepted)), bool(set(causes[:3]) & set(accepted))) for accepted, causes in said
    ]
    return f"first {sum(first for first, _ in right)}, among three {sum(three for _, three in right)}"


def main() -> None:
    """Write the weights, or try them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--pages", action="store_true")
    torch.set_num_threads(1)
    if not parser.parse_args().leave_out:
        text = json.dumps(words_of_pages(), separators=(",", ":")).replace('","', '",\n"')
        WRITTEN.with_name("pages.json").write_text(text + "\n", encoding="utf-8")
    if parser.parse_args().pages:
        return
    cases = list(examples())
    if parser.parse_args().leave_out:
        left_out(cases)
        return
    text = json.dumps(to_json(learn(cases)), separators=(",", ":"))
    WRITTEN.write_text(text.replace('],"', '],\n"') + "\n", encoding="utf-8")
    print(f"{WRITTEN.name}: {len(cases)} cases, {len(text):,} bytes")


if __name__ == "__main__":
    main()
