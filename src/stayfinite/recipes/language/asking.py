"""``stayfinite generate``: finding a trained model, asking it, and putting what it writes together with the prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.language.filling import spans_of
from stayfinite.recipes.language.trained import read_description
from stayfinite.recipes.running.quiet import quiet_transformers
from stayfinite.recipes.seq2seq.adapters import base_of, is_adapter, load_adapters
from stayfinite.recipes.seq2seq.models import fit_vocabulary, load_trained
from stayfinite.recipes.seq2seq.tokenizers import TO_USE, load_tokenizer, sentinel_ids

GAP = re.compile(r"<extra_id_(\d+)>")
MODELS = ("best", "final")
"""What a run directory keeps its models in, the better one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model wrote for a prompt."""

    prompt: str
    """As it was given."""
    text: str
    """What was written; with gaps in the prompt, the prompt with its gaps filled."""
    gaps: list[str]
    """What was written for each gap, in their order; empty for a plain prompt."""

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return asdict(self)


class Author:
    """A model with its tokenizer, ready to write.

    Arguments:
        directory: where it was loaded from, as `find_model` found it.
        device: to compute on.
        seed: for drawing.
        cache_dir: where models from a hub are kept.

    Raises:
        UsageError: it cannot be loaded, or is no encoder-decoder.
    """

    def __init__(self, directory: str, *, device: torch.device, seed: int = 0, cache_dir: str | None = None) -> None:
        torch.manual_seed(seed)
        place = Path(directory)
        adapted = is_adapter(place)
        model = load_trained(base_of(place) if adapted else directory, cache_dir=cache_dir)
        self._tokenizer = load_tokenizer(directory, cache_dir=cache_dir, fix=TO_USE)
        if adapted:
            fit_vocabulary(model, self._tokenizer)
            with quiet_transformers():
                model = load_adapters(model, place)
        self._model = model.eval().to(device)
        self._sentinels = sentinel_ids(self._tokenizer)
        objective = read_description(place).get("objective")
        # What nobody described and has sentinels is a T5, trained on span corruption unless it was fine-tuned since.
        self.fills_gaps = objective == "span_corruption"

    def write(self, prompt: str, options: Mapping[str, Any]) -> list[Answer]:
        """What the model writes for a prompt, as often as ``num_return_sequences`` asks for.

        Arguments:
            options: as transformers' ``generate`` takes them.

        Raises:
            UsageError: the prompt is empty, or has a gap that the tokenizer has no name for.
        """
        if not prompt.strip():
            raise UsageError("the prompt is empty", fix="--prompt 'some words'")
        asked = f"{prompt.rstrip()} <extra_id_0>" if self.completes(prompt) else prompt
        gaps = [int(number) for number in GAP.findall(asked)]
        if gaps and max(gaps) >= len(self._sentinels):
            raise UsageError(
                f"<extra_id_{max(gaps)}>: the model has {len(self._sentinels)} sentinels",
                fix="number the gaps from <extra_id_0>" if self._sentinels else "give a plain prompt",
            )
        given = self._tokenizer(asked, return_tensors="pt", verbose=False).to(self._model.device)
        with torch.inference_mode():
            written = self._model.generate(
                input_ids=given["input_ids"], attention_mask=given["attention_mask"], use_cache=True, **options
            ).tolist()
        return [self._answer(prompt, asked, gaps, row) for row in written]

    def completes(self, prompt: str) -> bool:
        """Whether a plain prompt is given a gap at its end, which is what such a model knows how to fill."""
        return self.fills_gaps and not GAP.search(prompt)

    def _answer(self, prompt: str, asked: str, gaps: Sequence[int], row: list[int]) -> Answer:
        if not gaps:
            return Answer(prompt=prompt, text=self._words(row), gaps=[])
        ends = (self._tokenizer.eos_token_id, self._tokenizer.pad_token_id)
        spans = spans_of(row, self._sentinels, ends)
        filled = [self._words(spans.get(self._sentinels[gap], [])) for gap in gaps]
        if asked != prompt:  # the gap was put there for it
            return Answer(prompt=prompt, text=filled[0], gaps=[])
        words = iter(filled)
        return Answer(prompt=prompt, text=GAP.sub(lambda _: next(words), asked), gaps=filled)

    def _words(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()


def find_model(named: str) -> str:
    """The directory or hub's name of a model: of a run directory its best model, or its final one.

    Raises:
        UsageError: it is a run without a model, or a directory without one.
    """
    place = Path(named)
    if not place.exists():
        return named
    if not place.is_dir():
        raise UsageError(f"{named} is a file", fix="name the directory that holds config.json, or a run directory")
    if _holds_model(place):
        return named
    for name in MODELS:
        if _holds_model(place / name):
            return str(place / name)
    if (place / "run.json").is_file():
        raise UsageError(
            f"{named} has no model yet: neither {' nor '.join(MODELS)} exists",
            fix="best/ is saved at the first evaluation, final/ at the end",
        )
    raise UsageError(f"no model in {named}: no config.json, best/ or final/", fix="name a run, or a model")


def _holds_model(place: Path) -> bool:
    return (place / "config.json").is_file() or is_adapter(place)
