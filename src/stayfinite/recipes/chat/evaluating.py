"""Asking a model held-out questions: what it says, how much of it is right, and how far its probabilities are off."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from stayfinite.recipes.chat.losses import is_packable, loss_of, within_window
from stayfinite.recipes.chat.prompts import Example, Padding, Prompting, supervised
from stayfinite.recipes.chat.questions import Question, Scores, answer_to, is_right, score
from stayfinite.recipes.models import in_portions, with_cache
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.running.records import write_record
from stayfinite.state.parts import evaluating

TOLD = ("accuracy", "answer_rate", "loss")
"""Scores for loggers."""
LOSS_ROWS = 32
"""Rows of a batch whose loss is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What was said, and what it is worth."""

    scores: Scores
    loss: float
    """Cross-entropy of the right answers, by token."""
    texts: list[str]

    def to_json(self) -> dict[str, Any]:
        """The figures. ``merit`` orders models: accuracy, then answer rate, then loss."""
        # The loss is squeezed below what one answer more or less can count.
        merit = self.scores.accuracy + 1e-4 * self.scores.answer_rate + 1e-8 / (1 + self.loss)
        return {**asdict(self.scores), "loss": self.loss, "merit": merit}


def evaluate(
    model: Any,
    prompting: Prompting,
    questions: Sequence[Question],
    *,
    new_tokens: int,
    limit: int,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    samples: int = 0,
    batch_size: int = 128,
    say: Callable[[str], None] = print,
    progress: Callable[[int, int], None] | None = None,
    place: Place | None = None,
) -> Evaluation:
    """Ask each question once, with the likeliest tokens. Training's random numbers stay as they are.

    Arguments:
        limit: tokens in a row, as in training.
        samples: so many answers are shown.
        place: of this process; each of several asks its part of the questions, and all have the scores of the whole.
    """

    def ask(asked: list[str]) -> list[str]:
        return generate(
            model, prompting, asked, new_tokens=new_tokens, autocast=autocast, batch_size=batch_size, limit=limit,
            progress=progress,
        )  # fmt: skip

    every, device = [question.text for question in questions], next(model.parameters()).device
    with kept_random(device):
        texts = ask(every) if place is None else place.shared_out(every, ask, size=len)
        rows = prompting.examples(questions, limit)
        pad = int(prompting.tokenizer.pad_token_id)
        loss = held_out_loss(model, rows, pad, autocast=autocast, place=place or Place(device=device))
    for question, text in list(zip(questions, texts, strict=True))[:samples]:
        right = is_right(answer_to(question.answer, text), question.answer)
        verdict = "right" if right else f"not {question.answer}"
        shown = " ".join(text.split())
        say(f"  {question.text[:100]}\n    {shown[:160] or '(nothing)'}  [{verdict}]")
    return Evaluation(scores=score(texts, [question.answer for question in questions]), loss=loss, texts=texts)


def kept_random(device: torch.device) -> AbstractContextManager[None]:
    """Context that leaves the random numbers of training as they are."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def scored_once(path: Path, place: Place, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Scores that a run computes once, before its first step, and keeps in this file."""
    known: dict[str, Any] | None = place.from_first(json.loads(path.read_text("utf-8")) if path.exists() else None)
    if known is None:
        known = ask()
        if place.first:
            write_record(path, known)
    return known


def held_out_loss(
    model: Any, rows: Sequence[Example], pad: int, *, autocast: Callable[[], AbstractContextManager[Any]], place: Place
) -> float:
    """Mean cross-entropy over the tokens of the right answers; of several processes each computes its part."""
    compute, padding = loss_of(model, next(model.parameters()).device), Padding(pad=pad)
    own = sorted(rows, key=lambda row: row.length)[place.rank :: place.count]
    total, tokens = 0.0, 0.0
    with evaluating(model), torch.no_grad(), autocast():
        for start in range(0, len(own), LOSS_ROWS):
            batch = padding(own[start : start + LOSS_ROWS])
            count = int(supervised(batch))
            total, tokens = total + float(compute(batch)) * count, tokens + count
    total, tokens = place.total([total, tokens])
    return total / max(1, tokens)


def tokens_enough(examples: Sequence[Example], least: int = 0) -> int:
    """Tokens that the longest right answer needs, and some more: an answer that is cut off would be no answer."""
    return max(least, max(len(example.completion) for example in examples) + 8)


def in_words(found: Mapping[str, Any]) -> str:
    """The figures of an evaluation in a line."""
    return (
        f"accuracy {found['accuracy']:.3f}, answer rate {found['answer_rate']:.3f}, loss {found['loss']:.4f} "
        f"({found['questions']:,} questions)"
    )


WORTH = 8
"""Tokens at the beginning of every question that are worth computing by themselves, once for all."""


def generate(model: Any, prompting: Prompting, questions: Sequence[str], **options: Any) -> list[str]:
    """What the model says to each question as text; the options are those of :func:`generate_tokens`."""
    said = generate_tokens(model, prompting, questions, **options)
    return [str(text) for text in prompting.tokenizer.batch_decode(said, skip_special_tokens=True)]


def generate_tokens(
    model: Any,
    prompting: Prompting,
    questions: Sequence[str],
    *,
    new_tokens: int,
    limit: int | None = None,
    batch_size: int = 64,
    samples: int = 1,
    temperature: float = 0.0,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[int]]:
    """The tokens that the model says to each question, up to the end mark and with it where it was said.

    Of several samples of a question one comes after the other.

    Arguments:
        new_tokens: that an answer may have.
        limit: tokens that a question with its frame may have; a longer one is cut. What is said comes on top, so that
            room for a long answer never costs the question.
        temperature: 0 takes the likeliest token; above it, tokens are drawn from torch's generators.
        progress: is told how many questions are done, of how many.
    """
    device = next(model.parameters()).device
    room = prompt_room(model, new_tokens, limit)
    rows = [prompting.prompt(question, room) for question in questions]
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
    pad = int(prompting.tokenizer.pad_token_id)
    options: dict[str, Any] = {"max_new_tokens": new_tokens, "pad_token_id": pad, "eos_token_id": prompting.end}
    options |= {"do_sample": bool(temperature)}
    options |= {"temperature": temperature, "top_p": 1.0, "top_k": 0} if temperature else {}
    options |= {"num_return_sequences": samples} if samples > 1 else {}
    written: list[list[list[int]]] = [[] for _ in rows]
    shared = _shared(model, rows, new_tokens) if device.type == "cpu" else 0
    begun: Any = None
    """What the model keeps of the tokens that all rows begin with."""

    def write(chosen: Sequence[int]) -> None:
        width = max(len(rows[row]) for row in chosen)
        # Padded before its own words: what is generated has to follow the question at once.
        gaps = [width - len(rows[row]) for row in chosen]
        parts = [(rows[row][:shared], gap, rows[row][shared:]) for row, gap in zip(chosen, gaps, strict=True)]
        ids = torch.tensor([[*first, *[pad] * gap, *own] for first, gap, own in parts], device=device)
        mask = torch.tensor([[1] * shared + [0] * gap + [1] * len(own) for _, gap, own in parts], device=device)
        with torch.inference_mode(), autocast():
            known = {}
            if begun is not None:
                known["past_key_values"] = copy.deepcopy(begun)  # generating goes on writing into it
                known["past_key_values"].batch_repeat_interleave(len(chosen) * samples)
            output = model.generate(input_ids=ids, attention_mask=mask, use_cache=True, **known, **options)
        said = [_up_to(row, prompting.end) for row in output[:, width:].tolist()]
        for position, row in enumerate(chosen):
            written[row] = said[position * samples : (position + 1) * samples]

    with evaluating(model), with_cache(model.config):
        if shared:
            with torch.inference_mode(), autocast():
                beginning = torch.tensor([rows[0][:shared]], device=device)
                begun = model(input_ids=beginning, use_cache=True, logits_to_keep=1).past_key_values
        in_portions(order, batch_size, write, progress)
    return [row for rows_of_one in written for row in rows_of_one]


def _shared(model: Any, rows: Sequence[list[int]], new_tokens: int) -> int:
    """Tokens that all rows begin with, where computing them once is worth it and changes nothing."""
    if len(rows) < 2 or not is_packable(model):
        return 0
    places = min(map(len, rows)) - 1  # the last token of a question is its own: it predicts
    shared = next((place for place in range(places) if len({row[place] for row in rows}) > 1), places)
    return shared if shared >= WORTH and within_window(model.config, max(map(len, rows)) + new_tokens) else 0


def _up_to(row: list[int], end: int) -> list[int]:
    """A row up to its first end mark; what comes after it is padding."""
    return row[: row.index(end) + 1] if end in row else row


def prompt_room(model: Any, new_tokens: int, limit: int | None) -> int | None:
    """Tokens that a question may have: as in training, and so that there are places left for what is said."""
    places = getattr(model.config, "max_position_embeddings", None)
    bounds = [limit, None if places is None else int(places) - new_tokens]
    return min((bound for bound in bounds if bound is not None), default=None)
