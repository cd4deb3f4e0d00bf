"""Rows of tokens: what the model is given and is to say, the same everywhere, and their batches of like length."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.questions import Question, raise_it, wrapped
from stayfinite.recipes.running.sharing import Examples
from stayfinite.recipes.seq2seq.batching import LengthBuckets

IGNORED = -100
"""Labels of the question and of padding: the loss passes over them."""


@dataclass(frozen=True, slots=True)
class Example:
    """One row as token ids: what is given, and what is to be said, the end mark included."""

    prompt: list[int]
    completion: list[int]
    cut: bool = False
    """Whether the question was cut to make room."""
    spare: bool = False
    """Whether nothing is learned from it; see `running.sharing`."""

    @property
    def length(self) -> int:
        """Tokens in all."""
        return len(self.prompt) + len(self.completion)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompting:
    """The one format of a model: its chat template where it has one, else a plain question and answer."""

    tokenizer: Any
    system: str = ""
    """Said before every question; nothing where it is empty."""

    def prompt(self, question: str, room: int | None = None) -> list[int]:
        """The tokens up to where the answer begins; of a question that is too long for ``room``, as much as fits.

        Raises:
            UsageError: nothing of it fits: every question would be the same one.
        """
        whole = self._framed(question)
        fitting = self._cut(question, whole, room)
        if fitting is None:
            raise UsageError(
                f"no room for the question: {room} tokens before the answer, {len(self._framed(''))} for chat format "
                f"and system text: {question[:60]!r}",
                fix=f"--max-length {len(whole)} or more, fewer --new-tokens, or a shorter --system",
            )
        return fitting

    def completion(self, question: Question) -> list[int]:
        """The tokens of the right answer: the way to it, the answer in its tags, the end mark."""
        return self._completions([question])[0]

    @property
    def end(self) -> int:
        """The end mark, which the model is taught to say."""
        return int(self.tokenizer.eos_token_id)

    def examples(
        self, questions: Sequence[Question], limit: int, refuse: Callable[[UsageError], None] = raise_it
    ) -> list[Example]:
        """Rows of training within so many tokens each. A question is cut where it must be, an answer never.

        Arguments:
            refuse: is given what is wrong with a row, which is then left out.

        Raises:
            UsageError: an answer leaves no room for a question; the message names the row.
        """
        if not questions:
            return []
        prompts = self._prompts([question.text for question in questions])
        found: list[Example] = []
        for row in zip(questions, prompts, self._completions(questions), strict=True):
            try:
                found.append(self._example(*row, limit))
            except UsageError as error:
                refuse(error)
        return found

    def _example(self, question: Question, prompt: list[int], completion: list[int], limit: int) -> Example:
        fitting = self._cut(question.text, prompt, limit - len(completion))
        if fitting is None:
            raise UsageError(
                f"{question.where or 'a row'}: its answer of {len(completion)} tokens does not fit into --max-length "
                f"{limit}: {question.answer[:60]!r}",
                fix=f"--max-length {len(prompt) + len(completion)} or more, or remove the row",
            )
        return Example(fitting, completion, cut=len(fitting) < len(prompt))

    def _cut(self, question: str, whole: list[int], room: int | None) -> list[int] | None:
        """The framed question, or as much of it as fits; None where nothing of it does, so that all were the same."""
        if room is None or len(whole) <= room:
            return whole
        low, high = 0, len(question)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if len(self._framed(question[:middle])) <= room else (low, middle - 1)
        return self._framed(question[:low]) if low else None

    def _framed(self, question: str) -> list[int]:
        return self._prompts([question])[0]

    def _prompts(self, questions: Sequence[str]) -> list[list[int]]:
        """The one place where a question gets its frame."""
        if not getattr(self.tokenizer, "chat_template", None):
            before = f"{self.system}\n" if self.system else ""
            start = self.tokenizer.bos_token_id
            rows = self._ids([f"{before}Question: {question}\nAnswer: " for question in questions])
            return rows if start is None else [[int(start), *row] for row in rows]
        system = [{"role": "system", "content": self.system}] if self.system else []
        chats = [[*system, {"role": "user", "content": question}] for question in questions]
        # The template brings its own start mark.
        return self._ids(self.tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True))

    def _completions(self, questions: Sequence[Question]) -> list[list[int]]:
        """The one place where an answer gets its tags and its end."""
        ways = [f"{question.reasoning} " if question.reasoning else "" for question in questions]
        texts = [f"{way}{wrapped(question.answer)}" for way, question in zip(ways, questions, strict=True)]
        return [[*row, self.end] for row in self._ids(texts)]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(row) for row in self.tokenizer(list(texts), add_special_tokens=False).input_ids]


def decoded(tokenizer: Any, row: Sequence[int], labels: Sequence[int] | None = None) -> str:
    """A row in words; what is supervised stands after an arrow."""
    if labels is None:
        return str(tokenizer.decode(list(row)))
    given = [token for token, label in zip(row, labels, strict=True) if label == IGNORED]
    said = [label for label in labels if label != IGNORED]
    return f"{tokenizer.decode(given)} -> {tokenizer.decode(said)}"


def shared_batches(
    lengths: Sequence[int], size: int, *, rank: int = 0, count: int = 1, seed: int = 0, spread: int = 16
) -> LengthBuckets:
    """Batches in a new random order each epoch. Every process draws the same order and takes its own share of each.

    Arguments:
        lengths: of each row; rows of like length come together, so that little is padded.
        size: rows in a batch of all processes.
        rank: of this process.
        count: of all processes.
        seed: for the order.
        spread: how many batches are sorted together; more means less padding and less chance.
    """
    sides = [(length, 0) for length in lengths]
    return LengthBuckets(sides, size, spread=spread, seed=seed, rank=rank, ranks=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Puts examples into one batch. Labels are masked by place: the end mark is learned even where it also pads."""

    pad: int
    multiple: int = 8
    """Lengths are rounded up to this, which matrix units like and which keeps the number of shapes small."""

    def __call__(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        # A process for which a batch has no row computes one of the others, which then counts for nothing.
        idle = {"counted": torch.tensor([not each.spare for each in examples])}
        width = -(-max(example.length for example in examples) // self.multiple) * self.multiple

        def filled(rows: Iterable[list[int]], fill: int) -> Tensor:
            return torch.tensor([row + [fill] * (width - len(row)) for row in rows])

        return {
            "input_ids": filled((each.prompt + each.completion for each in examples), self.pad),
            "attention_mask": filled(([1] * each.length for each in examples), 0),
            "labels": filled(([IGNORED] * len(each.prompt) + each.completion for each in examples), IGNORED),
            **(idle if any(each.spare for each in examples) else {}),
        }


def supervised(batch: Mapping[str, Tensor]) -> Tensor:
    """How many tokens of a batch are learned from: labels but for the first place, which nothing predicts."""
    learned = batch["labels"][:, 1:] != IGNORED
    return (learned[batch["counted"]] if "counted" in batch else learned).sum()


def rows_in_words(tokenizer: Any, batch: Mapping[str, Tensor]) -> list[str]:
    """What each row of a batch asks, and what it is to be answered."""
    rows = zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), batch["labels"].tolist(), strict=True)
    return [decoded(tokenizer, ids[: sum(mask)], labels[: sum(mask)]) for ids, mask, labels in rows]


def loader_of(
    examples: Sequence[Example], pad: int, *, size: int, rank: int = 0, count: int = 1, seed: int = 0, pin: bool = False
) -> DataLoader[Any]:
    """A loader over the examples, for one of so many processes; ``size`` rows of all of them in a batch."""
    sampler = shared_batches([each.length for each in examples], size, rank=rank, count=count, seed=seed)
    return DataLoader(
        Examples(examples, lambda row: replace(row, spare=True)), batch_sampler=sampler,
        collate_fn=Padding(pad=pad, multiple=8 if pin else 1),  # a CPU gains nothing by round lengths
        pin_memory=pin,
    )  # fmt: skip
