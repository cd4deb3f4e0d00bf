"""Groups of answers to one question: sampled, rewarded, and put into batches to learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.recipes.chat.batching import Padding
from stayfinite.recipes.chat.generating import generate_tokens, prompt_room
from stayfinite.recipes.chat.prompts import Example, Prompting
from stayfinite.recipes.chat.questions import Question
from stayfinite.recipes.policy.rewards import advantages_of, equal_share, reward_of
from stayfinite.recipes.running.processes import Place

Score = Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Answers of a model to questions, ``size`` of each, one after the other."""

    examples: list[Example]
    texts: list[str]
    rewards: Tensor
    advantages: Tensor
    size: int
    cut: list[bool]
    """Whether each was truncated at the limit."""

    @property
    def equal(self) -> float:
        """Share of the groups from which nothing can be learned."""
        return equal_share(self.rewards, self.size)

    @property
    def length(self) -> float:
        """Mean tokens of an answer."""
        return sum(len(each.completion) for each in self.examples) / len(self.examples)


def share_of_questions(questions: Sequence[Question], steps: int, place: Place) -> list[Question]:
    """This rank's questions of a sampling: its share of those of each step, one step after the other."""
    each = len(questions) // steps
    own = [range(step * each, (step + 1) * each)[place.rank :: place.count] for step in range(steps)]
    return [questions[row] for rows in own for row in rows]


def sample_groups(
    model: Any,
    prompting: Prompting,
    questions: Sequence[Question],
    *,
    size: int,
    temperature: float,
    new_tokens: int,
    limit: int,
    readable: float,
    autocast: Callable[[], AbstractContextManager[Any]],
    batch_size: int,
) -> Sampled:
    """Ask each question ``size`` times, and reward what is said. Tokens are drawn from torch's generators."""
    said = generate_tokens(
        model, prompting, [question.text for question in questions], new_tokens=new_tokens, limit=limit, samples=size,
        temperature=temperature, autocast=autocast, batch_size=batch_size,
    )  # fmt: skip
    # What is learned from are the tokens that were sampled: a text that is tokenized again may have others.
    room = prompt_room(model, new_tokens, limit)
    prompts = [prompting.prompt(question.text, room) for question in questions for _ in range(size)]
    texts = [str(text) for text in prompting.tokenizer.batch_decode(said, skip_special_tokens=True)]
    ended = [row[-1] == prompting.end for row in said]
    rights = [question.answer for question in questions for _ in range(size)]
    rewards = torch.tensor(
        [
            reward_of(text, right, ended=done, readable=readable)
            for text, right, done in zip(texts, rights, ended, strict=True)
        ]
    )
    return Sampled(
        examples=[Example(prompt, row) for prompt, row in zip(prompts, said, strict=True)],
        texts=texts,
        rewards=rewards,
        advantages=advantages_of(rewards, size),
        size=size,
        cut=[not done for done in ended],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What one step learns from, on this rank."""

    batches: list[dict[str, Tensor]]
    shares: list[float]
    """What the mean loss of each batch counts for in the step, whose gradients the ranks average."""
    signals: dict[str, float]
    """Of all answers of the step on all ranks, also of those that nothing is learned from."""


def portions_of(
    sampled: Sampled,
    padding: Padding,
    *,
    steps: int,
    rows: int,
    keep_equal: bool,
    length_normalized: bool,
    place: Place,
) -> list[Portion]:
    """The answers shared out among so many steps, in batches of about so many rows. Every rank calls it.

    Arguments:
        keep_equal: whether groups of equal rewards are kept, as a distance to the reference needs them. They add
            nothing else to a gradient, and are counted in the shares all the same.
        length_normalized: as in the loss: whether every answer counts the same, or every token.
    """
    size, total = sampled.size, len(sampled.examples) // steps
    width = max(1, rows // size) * size  # whole groups
    found = []
    for first in range(0, len(sampled.examples), total):
        own = range(first, first + total)
        groups = [own[start : start + size] for start in range(0, total, size)]
        telling = [group for group in groups if keep_equal or bool(sampled.advantages[group.start : group.stop].any())]
        kept = [row for group in telling or groups[:1] for row in group]
        pieces = [kept[start : start + width] for start in range(0, len(kept), width)]
        weight = [1 if length_normalized else len(each.completion) for each in sampled.examples]
        rewards = sampled.rewards[own.start : own.stop]
        of_rank = {
            "reward": float(rewards.sum()),
            "right": float((rewards == 1.0).sum()),
            "equal_groups": equal_share(rewards, size) * total,
            "length": float(sum(len(sampled.examples[row].completion) for row in own)),
            "cut_off": float(sum(sampled.cut[row] for row in own)),
        }
        answers, counted, *sums = place.total([total, sum(weight[row] for row in own), *of_rank.values()])
        found.append(
            Portion(
                batches=[
                    padding([sampled.examples[row] for row in piece]) | {"advantages": sampled.advantages[piece]}
                    for piece in pieces
                ],
                shares=[place.count * sum(weight[row] for row in piece) / counted for piece in pieces],
                signals={name: each / answers for name, each in zip(of_rank, sums, strict=True)},
            )
        )
    return found


@torch.no_grad()
def scored(
    batch: dict[str, Tensor],
    score: Score,
    autocast: Callable[[], AbstractContextManager[Any]],
    reference: Callable[[], AbstractContextManager[Any]] | None,
    kl: float | None = None,
) -> dict[str, Tensor]:
    """A batch with the log-probabilities of its tokens before the step and, where it is asked for, by the reference.

    The weight of the distance goes with it: it may change during a run, and a replay needs the one of its step.

    By the training pass rather than by the sampling: the two differ by rounding, and a ratio begins at 1.
    """
    with autocast():
        known = {"old": score(batch)[0]}
        if reference is not None:
            with reference():
                known["reference"] = score(batch)[0]
            if kl is not None:
                known["kl"] = torch.full_like(batch["advantages"], kl)
    return batch | known


def endless(batches: Callable[[], Any], over: Callable[[], bool]) -> Iterator[Any]:
    """The batches of one epoch after the other, until it is over."""
    for _ in count():
        if over():
            return
        for batch in batches():
            yield batch
            if over():
                return


class StartWeights:
    """The trainable weights as they were, to be put in for a while: the reference of the KL without a second model."""

    def __init__(self, model: nn.Module) -> None:
        self._trained = [each for each in model.parameters() if each.requires_grad]
        self._start = [each.detach().clone() for each in self._trained]

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Within, the model is the one that training began with."""
        present = [each.data for each in self._trained]
        try:
            for each, start in zip(self._trained, self._start, strict=True):
                each.data = start
            yield
        finally:
            for each, value in zip(self._trained, present, strict=True):
                each.data = value
