"""Sample groups of answers to a question, reward them, batch them, and correct a run whose signals show trouble."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.recipes.chat.evaluating import generate_tokens, prompt_room
from stayfinite.recipes.chat.prompts import Example, Padding, Prompting, rows_in_words
from stayfinite.recipes.chat.questions import Question, is_right, number_in, parsed
from stayfinite.recipes.running.processes import Place
from stayfinite.rl import Rung, Steering

TINY = 1e-6
"""Rewards closer than this are equal."""


def reward_of(text: str, right: str, *, ended: bool, readable: float) -> float:
    """1 if right, ``readable`` if parseable but wrong, 0 otherwise.

    A truncated answer gets 0: rewarding it would teach the model not to stop.
    """
    given = parsed(text, numeric=number_in(right) is not None)
    if not ended or given is None:
        return 0.0
    return 1.0 if is_right(given, right) else readable


def advantages_of(rewards: Tensor, size: int) -> Tensor:
    """Rewards standardized within each group; 0 if a group's rewards are equal.

    Arguments:
        rewards: ``size`` consecutive ones per question.
    """
    groups = rewards.view(-1, size)
    spread = groups.std(dim=1, correction=0, keepdim=True)
    centered = groups - groups.mean(dim=1, keepdim=True)
    return torch.where(spread > TINY, centered / spread.clamp(min=TINY), 0.0).flatten()


def equal_share(rewards: Tensor, size: int) -> float:
    """Share of groups with equal rewards."""
    groups = rewards.view(-1, size)
    return float((groups.std(dim=1, correction=0) <= TINY).float().mean())


Score = Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Answers to questions, ``size`` consecutive ones per question."""

    examples: list[Example]
    texts: list[str]
    rewards: Tensor
    advantages: Tensor
    size: int
    cut: list[bool]
    """Whether each answer was truncated at the limit."""

    @property
    def equal(self) -> float:
        """Share of groups with equal rewards, which give no gradient."""
        return equal_share(self.rewards, self.size)

    @property
    def length(self) -> float:
        """Mean tokens per answer."""
        return sum(len(each.completion) for each in self.examples) / len(self.examples)


def share_of_questions(questions: Sequence[Question], steps: int, place: Place) -> list[Question]:
    """This rank's share of the questions of each step, in step order."""
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
    """Sample ``size`` answers per question with torch's generators, and reward them."""
    said = generate_tokens(
        model, prompting, [question.text for question in questions], new_tokens=new_tokens, limit=limit, samples=size,
        temperature=temperature, autocast=autocast, batch_size=batch_size,
    )  # fmt: skip
    # Train on the sampled tokens: tokenizing the text again may give others.
    room = prompt_room(model, new_tokens, limit)
    prompts = [prompting.prompt(question.text, room) for question in questions for _ in range(size)]
    texts = [str(text) for text in prompting.tokenizer.batch_decode(said, skip_special_tokens=True)]
    cut = [row[-1] != prompting.end for row in said]
    rights = [question.answer for question in questions for _ in range(size)]
    earned = zip(texts, rights, cut, strict=True)
    rewards = torch.tensor([reward_of(text, right, ended=not cut, readable=readable) for text, right, cut in earned])
    return Sampled(
        examples=[Example(*row) for row in zip(prompts, said, strict=True)], texts=texts, rewards=rewards,
        advantages=advantages_of(rewards, size), size=size, cut=cut,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """One step's training data on this rank."""

    batches: list[dict[str, Tensor]]
    shares: list[float]
    """Weight of each batch's mean loss in the step; ranks average gradients."""
    signals: dict[str, float]
    """Means over all answers of the step on all ranks, including those dropped from training."""


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
    """Split the answers into ``steps`` steps, in batches of about ``rows`` rows. Call on every rank.

    Arguments:
        keep_equal: keep groups with equal rewards, which the KL term needs. Otherwise they are dropped but still
            count in the shares.
        length_normalized: whether every answer counts the same, rather than every token.
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
        batches = [
            padding([sampled.examples[row] for row in piece]) | {"advantages": sampled.advantages[piece]}
            for piece in pieces
        ]
        shares = [place.count * sum(weight[row] for row in piece) / counted for piece in pieces]
        signals = {name: each / answers for name, each in zip(of_rank, sums, strict=True)}
        found.append(Portion(batches=batches, shares=shares, signals=signals))
    return found


@torch.no_grad()
def scored(
    batch: dict[str, Tensor],
    score: Score,
    autocast: Callable[[], AbstractContextManager[Any]],
    reference: Callable[[], AbstractContextManager[Any]] | None,
    kl: float | None = None,
) -> dict[str, Tensor]:
    """Add the log-probabilities before the step and, optionally, of the reference.

    Adds the KL weight, too, since it may change and a replay needs that of its step. Computed by the training pass:
    sampling differs by rounding, and the ratio must start at 1.
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
    """Batches of epoch after epoch, until it is over."""
    while not over():
        for batch in batches():
            yield batch
            if over():
                return


class StartWeights:
    """A copy of the initial trainable weights: the KL reference without a second model."""

    def __init__(self, model: nn.Module) -> None:
        self._trained = [each for each in model.parameters() if each.requires_grad]
        self._start = [each.detach().clone() for each in self._trained]

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Use the initial weights within this context."""
        present = [each.data for each in self._trained]
        try:
            for each, start in zip(self._trained, self._start, strict=True):
                each.data = start
            yield
        finally:
            for each, value in zip(self._trained, present, strict=True):
                each.data = value


def shown(portion: Portion) -> dict[str, Tensor]:
    """Signals for log lines."""
    return {name: torch.tensor(portion.signals[name]) for name in ("right", "length")}


def in_words_of(tokenizer: Any, batch: Mapping[str, Tensor]) -> list[str]:
    """Prompt, answer and advantage of each row."""
    worth = batch["advantages"].tolist()
    return [f"{text} (advantage {one:+.2f})" for text, one in zip(rows_in_words(tokenizer, batch), worth, strict=True)]


PATIENCE = 5
"""Steps to wait between two measures; much longer and no good snapshot is left."""

WORDS = {
    Rung.KL: "raised the KL coefficient to {kl:g}",
    Rung.RATE: "cut the learning rate",
    Rung.ROLL_BACK: "rolled back to known-good weights",
}


class Steered:
    """Checks the signals between two samplings and acts, if enabled.

    Arguments:
        guard: of the training.
        config: settings of the recipe.
        say: receives what was done.
    """

    def __init__(self, guard: Any, config: Any, say: Callable[[str], None]) -> None:
        self._kl, self._say = config.kl, say
        self._steering = (
            Steering(guard, kl=config.kl, patience=max(1, PATIENCE // config.updates)) if config.steer else None
        )

    @property
    def kl(self) -> float:
        return self._kl if self._steering is None else self._steering.kl

    def follow(self) -> None:
        """Call before sampling, so that answers never predate a rollback."""
        rung = Rung.NOTHING if self._steering is None else self._steering.follow()
        if rung:
            self._say(f"steering: {WORDS[rung].format(kl=self.kl)}")
