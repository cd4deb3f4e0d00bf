"""``stayfinite translate``: translate a file with a trained model."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from stayfinite.cli.ending import exit_code
from stayfinite.core.schema_names import tagged
from stayfinite.flags import parsed


@dataclass(frozen=True, kw_only=True)
class Translate:
    """Translate every line of a text, or every row of a table, with beam search; the order is kept.

    Sources are normalized and prefixed as in the training of the model.
    """

    model: Annotated[str, tyro.conf.Positional]
    """The directory of a run (its best model is taken) or of a model, or a hub's name."""

    file: Annotated[Path, tyro.conf.Positional]
    """A text with a line for each, or a CSV, TSV, JSON, JSONL or Parquet table."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o", "--out"])] = None
    """Write a CSV here: the columns that there were, and `translation`; one of that name that was there is called
    `translation (given)`. By default it goes to the terminal."""

    source: str | None = None
    """Name of the source column; by default the one that was trained on, or guessed."""

    beams: int = 4
    """Beams of the search; 1 is greedy and quicker."""

    batch_size: int = 32
    """Texts that are translated at a time."""

    max_length: int | None = None
    """Tokens that a translation may have; by default as in training."""

    device: str = "auto"
    """cpu, cuda, or the best there is."""

    json: bool = False
    """Print one JSON object a row and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """Run the command: 0 when it was translated, 2 on wrong use."""
    settings = parsed(Translate, arguments, "stayfinite translate")
    return exit_code("translate", lambda: _run(settings), as_json=settings.json)


def _run(settings: Translate) -> int:
    from stayfinite.recipes.seq2seq.predictions import read_texts, write_table
    from stayfinite.recipes.seq2seq.translating import find_model, load_translator
    from stayfinite.recipes.settings import require
    from stayfinite.report.progress import counting_progress

    require(settings, at_least={1: ("beams", "batch_size", "max_length")})
    trained = find_model(settings.model)
    asked = read_texts(settings.file, settings.source, trained.settings["source"])
    translator = load_translator(
        trained, device=settings.device, batch_size=settings.batch_size, max_target=settings.max_length
    )
    with counting_progress("translating", quiet=settings.json) as progress:
        translations = translator.translate(asked.texts, beams=settings.beams, progress=progress)
    if settings.output is not None:
        write_table(asked, translations, settings.output)
    if settings.json:
        for source, translation in zip(asked.texts, translations, strict=True):
            print(json.dumps(tagged("translation", {"source": source, "translation": translation}), ensure_ascii=False))
    elif settings.output is None:
        write_table(asked, translations, sys.stdout)
    else:
        print(f"Saved {len(translations):,} translations to {settings.output}")
    return 0
