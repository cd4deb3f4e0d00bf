"""Use a trained model with its normalization, prefix and limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.running.place import choose_device
from stayfinite.recipes.running.quiet import quiet_transformers
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.seq2seq.evaluating import Evaluation
from stayfinite.recipes.seq2seq.models import load_trained
from stayfinite.recipes.seq2seq.normalizing import normalizer
from stayfinite.recipes.seq2seq.scores import Scores, score
from stayfinite.recipes.seq2seq.tokenizers import TO_USE, load_tokenizer
from stayfinite.recipes.seq2seq.trained import SETTINGS

DEFAULTS: dict[str, Any] = {
    "normalise": [], "prefix": "", "max_source_length": 256, "max_target_length": 256, "source": None, "target": None,
}  # fmt: skip
"""Settings for a model that was not trained here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translator:
    """A model with its tokenizer and normalization."""

    model: Any
    evaluation: Evaluation
    normalize: Callable[[str], str]

    def translate(
        self, sources: Sequence[str], *, beams: int, progress: Callable[[int, int], None] | None = None
    ) -> list[str]:
        """One translation per text, in order; empty for an empty text."""
        ready = [self.normalize(source).strip() for source in sources]
        asked = [row for row, text in enumerate(ready) if text]
        with quiet_transformers():
            found = self.evaluation.translate(self.model, [ready[row] for row in asked], beams=beams, progress=progress)
        translations = [""] * len(ready)
        for row, translation in zip(asked, found, strict=True):
            translations[row] = translation
        return translations

    def evaluate(
        self, pairs: Sequence[Pair], *, beams: int, progress: Callable[[int, int], None] | None = None
    ) -> tuple[Scores, list[str]]:
        """Scores and translations of these pairs."""
        translations = self.translate([pair.source for pair in pairs], beams=beams, progress=progress)
        return score(translations, [" ".join(pair.target.split()) for pair in pairs]), translations


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A model's location and settings, not loaded yet."""

    where: str
    settings: dict[str, Any]


def find_model(name: str) -> Trained:
    """The best model of a run, a model directory, or a hub model.

    Raises:
        UsageError: no model yet, or unreadable settings.
    """
    run = Path(name)
    where = str(run / "best") if (run / "best" / "config.json").exists() else name
    # Hub names have one slash at most; asking the hub for others takes a minute.
    if not run.exists() and (run.is_absolute() or name.startswith((".", "runs/")) or name.count("/") > 1):
        raise UsageError(f"{name}: no such directory", fix="name the --output-dir of a run, or a model")
    if where == name and (run / "run.json").exists():
        raise UsageError(f"{name}: no best model yet", fix="wait for its first evaluation")
    return Trained(where=where, settings=DEFAULTS | _settings(Path(where) / SETTINGS))


def load_translator(
    trained: Trained, *, device: str = "auto", batch_size: int = 32, max_target: int | None = None
) -> Translator:
    """Load the model for translation.

    Arguments:
        max_target: tokens per translation; default: as in training.

    Raises:
        UsageError: no such model or device.
    """
    settings = trained.settings
    place = choose_device(device)
    with quiet_transformers():
        model = load_trained(trained.where).to(place).eval()
        tokenizer = load_tokenizer(trained.where, fix=TO_USE)
    return Translator(
        model=model,
        evaluation=Evaluation(
            tokenizer=tokenizer,
            prefix=str(settings["prefix"]),
            limits=(int(settings["max_source_length"]), max_target or int(settings["max_target_length"])),
            batch_size=batch_size,
        ),
        normalize=normalizer(settings["normalise"]),
    )


def _settings(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {name: value for name, value in record.items() if name in DEFAULTS}
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"cannot read {path}: {error}", fix="restore it, or remove it to use defaults") from error
