"""The prompt, and the first token of each answer, looked up in the tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from stayfinite.errors import UsageError

PLAIN = "USER: {image}\n{image}\n{question} ASSISTANT:"
"""LLaVA's prompt for a processor without a chat template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The question in the model's format."""

    text: str
    ids: Tensor
    """(1, T), including the tokens of both images."""
    answers: tuple[int, ...]
    """First token of each class's answer."""
    words: tuple[str, ...]

    def __str__(self) -> str:
        pairs = zip(self.words, self.answers, strict=True)
        tokens = ", ".join(f"{word!r} is token {token}" for word, token in pairs)
        return f"{self.ids.shape[1]} tokens with both images; {tokens}"


def prompt_for(processor: Any, question: str, words: Sequence[str]) -> Prompt:
    """The prompt, and the token that begins each answer.

    Raises:
        UsageError: two answers share a first token, or the tokenizer lacks one.
    """
    text = _asked(processor, question)
    ids = _ids(processor, text)
    end = processor.tokenizer.eos_token_id
    if int(ids[0, -1]) == end:
        ids = ids[:, :-1]  # drop the EOS that some tokenizers append: the answer comes before it
    tried = []
    for between in ("", " "):
        tokens = [_first_token(processor, text + between + word, ids) for word in words]
        known = [token for token in tokens if token is not None]
        if len(set(known)) == len(words):
            return Prompt(text=text, ids=ids, answers=tuple(known), words=tuple(words))
        tried.append(_shown(processor, tokens))
    raise UsageError(
        f"the answers {', '.join(map(repr, words))} share a first token: {'; '.join(dict.fromkeys(tried))}",
        fix="--answers with words that start differently, such as A B C",
    )


def _asked(processor: Any, question: str) -> str:
    if getattr(processor, "chat_template", None):
        content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": question}]
        return str(processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True))
    return PLAIN.format(image=processor.image_token, question=question)


def _ids(processor: Any, text: str) -> Tensor:
    from PIL import Image

    blank = Image.new("RGB", (64, 64))
    ids: Tensor = processor(text=[text], images=[[blank, blank]], return_tensors="pt")["input_ids"]
    return ids


def _first_token(processor: Any, text: str, asked: Tensor) -> int | None:
    """The token right after the prompt; None if it does not identify an answer."""
    ids = _ids(processor, text)
    length = asked.shape[1]
    if ids.shape[1] <= length or not bool((ids[:, :length] == asked).all()):
        return None
    token = int(ids[0, length])
    tokenizer = processor.tokenizer
    if token in tokenizer.all_special_ids or not tokenizer.decode([token]).strip():
        return None
    return token


def _shown(processor: Any, tokens: Sequence[int | None]) -> str:
    names = ["none" if token is None else repr(processor.tokenizer.decode([token])) for token in tokens]
    return f"they begin with {', '.join(names)}"
