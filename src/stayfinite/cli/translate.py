"""``stayfinite translate``: translate a file with a trained model."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from stayfinite.cli.ending import command
from stayfinite.core.schema_names import tagged


@dataclass(frozen=True, kw_only=True)
class Translate:
    """Translate every line of a text, or every row of a table, with beam search. Sources are normalized and prefixed as
    in training.
    """

    model: Annotated[str, tyro.conf.Positional]
    """A run directory (its best model), a model directory, or a hub name."""

    file: Annotated[Path, tyro.conf.Positional]
    """Text with one source per line, or a CSV, TSV, JSON, JSONL or Parquet table."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o", "--out"])] = None
    """Write a CSV file: all columns, and `translation`; an existing one is renamed `translation (given)`. By default
    print."""

    source: str | None = None
    """Source column; by default that of the training, or guessed."""

    beams: int = 4
    """Beams; 1 is greedy and faster."""

    batch_size: int = 32
    """Texts per batch."""

    max_length: int | None = None
    """Most tokens of a translation; by default as in training."""

    device: str = "auto"
    """cpu or cuda; by default the best available."""

    json: bool = False
    """Print one JSON object per row and nothing else."""


@command(Translate)
def run(settings: Translate) -> int:
    """Run the command; 0 if it was translated, 2 on wrong use."""
    from stayfinite.recipes.seq2seq.translating import find_model, load_translator, read_texts, write_table
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
