"""A trained language model: saved, the result of its training, and asked (``stayfinite generate``)."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from stayfinite.errors import UsageError
from stayfinite.readers.runs.reader import read_object
from stayfinite.recipes.language.blocks import spans_of
from stayfinite.recipes.models import quiet_transformers
from stayfinite.recipes.running.records import Best, Outcome
from stayfinite.recipes.seq2seq.models import base_of, fit_vocabulary, is_adapter, load_adapters, load_trained
from stayfinite.recipes.seq2seq.tokenizers import TO_USE, load_tokenizer, sentinel_ids

DESCRIPTION = "language.json"


def save_trained(model: Any, tokenizer: Any, description: Mapping[str, Any], into: Path) -> None:
    """Save a model for transformers and ``stayfinite generate``. Only the adapters, if it has any."""
    into.mkdir(parents=True, exist_ok=True)
    with quiet_transformers():
        model.save_pretrained(into)
        tokenizer.save_pretrained(into)
    (into / DESCRIPTION).write_text(json.dumps({"version": 1, **description}, indent=1), encoding="utf-8")


def read_description(directory: Path) -> dict[str, Any]:
    """The description of a model; empty if missing."""
    return read_object(directory / DESCRIPTION) or {}


NUMBERS = ("first_loss", "last_loss", "validation_loss", "accuracy", "seconds")
NONE = {"loss": float("nan"), "accuracy": float("nan")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """Result of a training."""

    validation_loss: float
    accuracy: float

    def __str__(self) -> str:
        return (
            f"loss {self.first_loss:.3f} -> {self.last_loss:.3f}, validation loss {self.validation_loss:.3f}. Saved "
            f"the best model to {self.directory / 'best'}. Try it: stayfinite generate {self.directory} --prompt "
            "'...'"
        )

    def to_json(self) -> dict[str, Any]:
        """By name, without the directory."""
        return {name: value for name, value in asdict(self).items() if name != "directory"}


def result_of(numbers: Mapping[str, Any], best: Best) -> Result:
    """The result of a finished run: the numbers of its loop, and the best evaluation."""
    top = min(best.history, key=lambda entry: entry["loss"], default=NONE)
    return Result(**numbers, validation_loss=top["loss"], accuracy=top["accuracy"])


def recorded_result(record: Mapping[str, Any], run: Path) -> Result:
    """The result in ``result.json``."""
    numbers = {name: float("nan") if record.get(name) is None else float(record[name]) for name in NUMBERS}
    return Result(**numbers, steps=int(record["steps"]), directory=run)


GAP = re.compile(r"<extra_id_(\d+)>")
MODELS = ("best", "final")
"""Model directories of a run, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's output for a prompt."""

    prompt: str
    text: str
    """The output; for a prompt with gaps, the prompt with its gaps filled."""
    gaps: list[str]
    """Output for each gap, in order; empty for a plain prompt."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Author:
    """A model and tokenizer, ready to generate.

    Arguments:
        directory: from `find_model`.
        seed: for sampling.
        cache_dir: cache of hub models.

    Raises:
        UsageError: cannot be loaded, or is not an encoder-decoder.
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
        # Without a description, sentinels alone do not prove it: the T5 may have been fine-tuned.
        self.fills_gaps = objective == "span_corruption"

    def write(self, prompt: str, options: Mapping[str, Any]) -> list[Answer]:
        """Generate for a prompt, ``num_return_sequences`` times.

        Arguments:
            options: for transformers' ``generate``.

        Raises:
            UsageError: the prompt is empty, or has more gaps than the tokenizer has sentinels.
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
        """Whether to append a gap to a plain prompt, which is what such a model can fill."""
        return self.fills_gaps and not GAP.search(prompt)

    def _answer(self, prompt: str, asked: str, gaps: Sequence[int], row: list[int]) -> Answer:
        if not gaps:
            return Answer(prompt=prompt, text=self._words(row), gaps=[])
        ends = (self._tokenizer.eos_token_id, self._tokenizer.pad_token_id)
        spans = spans_of(row, self._sentinels, ends)
        filled = [self._words(spans.get(self._sentinels[gap], [])) for gap in gaps]
        if asked != prompt:  # the gap was appended here
            return Answer(prompt=prompt, text=filled[0], gaps=[])
        words = iter(filled)
        return Answer(prompt=prompt, text=GAP.sub(lambda _: next(words), asked), gaps=filled)

    def _words(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()


def find_model(named: str) -> str:
    """The directory or hub name of a model; for a run directory its best or final model.

    Raises:
        UsageError: a directory or run without a model.
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
