"""What the model is given and what it is to say. Training, evaluation, chat and sampling all come through here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.questions import Question, wrapped

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

    def examples(self, questions: Sequence[Question], limit: int) -> list[Example]:
        """Rows of training within so many tokens each. A question is cut where it must be, an answer never.

        Raises:
            UsageError: an answer leaves no room for a question; the message names the row.
        """
        if not questions:
            return []
        prompts = self._prompts([question.text for question in questions])
        rows = zip(questions, prompts, self._completions(questions), strict=True)
        return [self._example(*row, limit) for row in rows]

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
