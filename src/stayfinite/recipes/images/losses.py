"""The prompt with the first token of each answer, and the loss: right answers, and agreement with the swap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.recipes.images.batching import Batch
from stayfinite.recipes.images.pairs import LABELS, SWAPPED, Pair


class Comparison:
    """Runs a model on a batch of pairs in both orders.

    Arguments:
        model: LLaVA-style, from transformers.
        prompt: the question and the answer tokens.
        weights: of the classes.
    """

    def __init__(self, model: Any, prompt: Prompt, weights: Sequence[float], device: torch.device) -> None:
        self._model = model
        self._ids = prompt.ids.to(device)
        self._answers = torch.tensor(prompt.answers, device=device)
        self._weights = torch.tensor(weights, device=device)
        self._swap = torch.tensor(SWAPPED, device=device)
        self._device = device
        self.parts: dict[str, Tensor] = {}
        """Parts of the last loss: `answer` and the unweighted `consistency`."""

    def logits(self, batch: Batch) -> Tensor:
        """Class logits (2B, 3) in float32: all pairs, then all swapped."""
        images = batch["images"].to(self._device, non_blocking=True)  # (B, 2, 3, H, W)
        both = torch.cat([images, images.flip(1)]).flatten(0, 1)  # (4B, 3, H, W)
        ids = self._ids.expand(2 * len(images), -1)  # (2B, T): one prompt for all, so no padding
        output = self._model(
            input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=both, logits_to_keep=1, use_cache=False
        )
        logits: Tensor = output.logits[:, -1, self._answers]
        return logits.float()

    def labels(self, batch: Batch) -> Tensor:
        """The true class of each row of `logits`."""
        labels = batch["labels"].to(self._device, non_blocking=True)
        return torch.cat([labels, self._swap[labels]])

    def loss(self, batch: Batch) -> Tensor:
        """Weighted cross-entropy over both orders, plus the consistency term.

        Divided by the number of rows rather than the sum of weights, so that batches and ranks add up.
        """
        logits = self.logits(batch)
        answer = F.cross_entropy(logits, self.labels(batch), weight=self._weights, reduction="sum") / len(logits)
        apart = disagreement(logits, self._swap)
        weight = batch["consistency"].to(self._device, non_blocking=True)
        self.parts = {"answer": answer.detach(), "consistency": apart.mean().detach()}
        return answer + (weight * apart).mean()


def disagreement(logits: Tensor, swap: Tensor) -> Tensor:
    """Symmetric KL divergence between the answers to a pair and to its swap: (2B, 3) -> (B,).

    Half the sum of (p - q)(log p - log q): never negative, and finite for finite logits.
    """
    asked, swapped = logits.log_softmax(-1).chunk(2)
    swapped = swapped[:, swap]
    return 0.5 * ((asked.exp() - swapped.exp()) * (asked - swapped)).sum(-1)


def ramp(step: int, *, weight: float, over: int) -> float:
    """Weight of the consistency term at a step, counted from 0: linear ramp, then constant.

    An untrained model is consistent without knowing anything, so it should learn to answer first.
    """
    return weight * min(1.0, step / over) if over > 0 else weight


def class_weights(pairs: Sequence[Pair], *, balanced: bool) -> list[float]:
    """Weight per class, with mean 1 over the rows; 0 for a class without pairs."""
    counts = _counted(pairs)
    if not balanced:
        return [1.0] * len(LABELS)
    present = sum(count > 0 for count in counts)
    return [sum(counts) / (present * count) if count else 0.0 for count in counts]


def classes_in_words(pairs: Sequence[Pair], weights: Sequence[float]) -> str:
    """Rows and weight of each class, in words."""
    words = [
        f"{name} {count:,} rows, weight {weight:.2f}" if count else f"{name} none: never learned"
        for name, count, weight in zip(LABELS, _counted(pairs), weights, strict=True)
    ]
    return f"{'; '.join(words)} (every pair in both orders)"


def _counted(pairs: Sequence[Pair]) -> list[int]:
    """Rows per class. Each pair counts in both orders, so First and Second are equal."""
    counts = [0] * len(LABELS)
    for pair in pairs:
        counts[pair.label] += 1
        counts[SWAPPED[pair.label]] += 1
    return counts


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
