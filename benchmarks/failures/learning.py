"""Learns from the known logs which causes go with what (``stayfinite/rules/experience/weights.txt``).

    python -m benchmarks.failures.learning              # writes the weights
    python -m benchmarks.failures.learning --leave-out  # how well they do on sets that they were not made of

A logistic regression with a quadratic penalty: one class a cause, made of all sick cases, of the posts that describe
each cause (`posts`), and of the rules' pages. Posts and pages are as many for each cause, so they have a bias of their
own: how frequent a cause is, only the cases tell.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.failures.logs import reading as logs
from benchmarks.failures.posts import HEALTHY, posts
from stayfinite import diagnose
from stayfinite.diagnosis.diagnose import facts_of
from stayfinite.diagnosis.reading import read_paths
from stayfinite.errors import StayfiniteError
from stayfinite.rules.experience import likely
from stayfinite.rules.experience.features import PAIR, features, words
from stayfinite.rules.experience.likely import UNIT, Weights, judged, to_lines
from stayfinite.rules.registry import all_rules
from stayfinite.rules.rule import SECTIONS

PENALTY = 0.5
OF_DESCRIPTIONS = 0.1
"""Part of the penalty on the bias of posts and pages."""
WORDS_COUNT = 0.5
"""What a word counts, over a fact."""
LEAST_CASES, LEAST_SETS = 4, 2
"""In so many a word has to occur."""
MOST_CASES = 0.4
"""A word that more than this share has says nothing."""
LEAST_WEIGHT = 0.05
"""Weights below this are left out."""
PARTS = 5
"""Of the sets, one is left out at a time."""
WRITTEN = Path(likely.__file__).with_name("weights.txt")
CAUSES = sorted(rule.slug for rule in all_rules() if rule.severity != "info")


@dataclass(frozen=True)
class Example:
    """A case, a post, or a paragraph of a page."""

    set: str
    """Empty for what describes a cause."""
    cause: str
    accepted: frozenset[str]
    found: frozenset[str]


def cases() -> Iterator[Example]:
    """Every sick case that is known."""
    for folder in sorted(path for path in (logs.FOLDER / "known").iterdir() if path.is_dir()):
        for case in logs.read_set("known", folder.name):
            if not case.harmless and (found := _found(case)):
                yield Example(folder.name, case.cause, frozenset(case.accepted), found)


def _found(case: logs.LogCase) -> frozenset[str]:
    with tempfile.TemporaryDirectory() as place:
        try:
            return frozenset(features(facts_of(read_paths(case.write(Path(place))))))
        except StayfiniteError:
            return frozenset()


def descriptions() -> Iterator[Example]:
    """Each post, and each paragraph of a rule's page that is not about false alarms."""
    for cause, text in posts():
        if not cause.startswith(HEALTHY):
            case = logs.LogCase(part="logs", split="known", name="", causes=(), cause=cause, config="", log=text)
            yield Example("", cause, frozenset(), _found(case))
    for rule in all_rules():
        sections = (paragraph for title in SECTIONS[:-1] for paragraph in re.split(r"\n\n|\n- ", rule.section(title)))
        for said in (rule.slug.replace("-", " "), rule.title, rule.fix, *sections):
            if rule.slug in CAUSES and said:
                yield Example("", rule.slug, frozenset(), frozenset(words([said.replace("\n", " ")])))


def learn(examples: Sequence[Example]) -> Weights:
    """A model of these."""
    names = _worth_weighing(examples)
    scale = torch.tensor([1.0 if " " in name else WORDS_COUNT for name in names])
    at = {name: index for index, name in enumerate(names)}
    places = [(row, at[name]) for row, each in enumerate(examples) for name in sorted(each.found) if name in at]
    rows, columns = torch.tensor(places).T
    size = (len(examples), len(names))
    given = torch.sparse_coo_tensor(torch.stack([rows, columns]), scale[columns], size).coalesce()
    right = torch.tensor([CAUSES.index(each.cause) for each in examples])
    describes = torch.tensor([[float(not each.set)] for each in examples])
    weight = torch.zeros(len(names), len(CAUSES), requires_grad=True)
    bias, other = (torch.zeros(len(CAUSES), requires_grad=True) for _ in range(2))
    optimizer = torch.optim.LBFGS([weight, bias, other], max_iter=80, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        scores = torch.sparse.mm(given, weight) + bias + describes * other
        sizes = weight.square().sum() + bias.square().sum() + OF_DESCRIPTIONS * other.square().sum()
        loss = torch.nn.functional.cross_entropy(scores, right, reduction="sum") + PENALTY * sizes
        loss.backward()
        return loss

    optimizer.step(closure)
    rows = zip(names, (weight.detach() * scale[:, None]).tolist(), strict=True)
    return Weights(
        {cause: round(each, 2) for cause, each in zip(CAUSES, bias.tolist(), strict=True)},
        {name: numbers for name, row in rows if (numbers := _in_units(row))},
    )


def _in_units(row: Sequence[float]) -> str:
    """The numbers of causes and their weights, small ones left out."""
    return " ".join(f"{at} {round(each / UNIT)}" for at, each in enumerate(row) if abs(each) >= LEAST_WEIGHT)


def _worth_weighing(examples: Sequence[Example]) -> list[str]:
    """Facts, and the words and pairs of words that are neither rare nor everywhere."""
    counted = Counter(name for each in examples for name in each.found)
    real = [each for each in examples if each.set]
    frequent = Counter(name for each in real for name in each.found)
    sources = defaultdict(set)
    for each in examples:
        for name in each.found:
            sources[name].add(each.set or each.cause)
    return [
        name for name in sorted(counted)
        if (" " in name and PAIR not in name) or (
            counted[name] >= LEAST_CASES and frequent[name] <= MOST_CASES * len(real)
            and (len(sources[name]) >= LEAST_SETS or counted[name] >= 2 * LEAST_CASES)
        )
    ]  # fmt: skip


def left_out(known: Sequence[Example], described: Sequence[Example]) -> None:
    """Print how often causes are right on sets that experience was not made of, alone and with the rules."""
    sets = sorted({each.set for each in known})
    for names in (sets[part::PARTS] for part in range(PARTS)):
        model = learn([*(each for each in known if each.set not in names), *described])
        asked = [each for each in known if each.set in names]
        alone = _score((each.accepted, [one.cause for one in judged(each.found, model)]) for each in asked)
        sick = [case for name in names for case in logs.read_set("known", name) if not case.harmless]
        with patch.object(likely, "weights", return_value=model):
            together = _score(map(_told, sick))
        print(f"{', '.join(names)}: {len(asked)} cases; alone {alone}; with the rules {together}", flush=True)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave-out", action="store_true")
    arguments = parser.parse_args()
    known, described = list(cases()), list(descriptions())
    if arguments.leave_out:
        left_out(known, described)
        return
    text = "\n".join(to_lines(learn([*known, *described]))) + "\n"
    WRITTEN.write_text(text, encoding="utf-8")
    print(f"{WRITTEN.name}: {len(known)} cases, {len(described)} descriptions, {len(text):,} bytes")


if __name__ == "__main__":
    main()
