"""``stayfinite evaluate``: score a model's translations."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from stayfinite.cli.ending import command
from stayfinite.core.schema_names import tagged
from stayfinite.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Translate pairs and score them: BLEU, chrF++ and their geometric mean (sacrebleu)."""

    model: Annotated[str, tyro.conf.Positional]
    """A run directory (its best model), a model directory, or a hub name."""

    data: Annotated[tuple[str, ...], tyro.conf.Positional]
    """CSV, TSV, JSON, JSONL or Parquet tables with source and target columns, or two aligned texts, source first."""

    source: str | None = None
    """Source column; by default that of the training, or guessed."""

    target: str | None = None
    """Target column; by default that of the training, or guessed."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o", "--out"])] = None
    """Write source, target and translation of each pair to this CSV file."""

    beams: int = 4
    """Beams; 1 is greedy and faster."""

    batch_size: int = 32
    """Texts per batch."""

    device: str = "auto"
    """cpu or cuda; by default the best available."""

    json: bool = False
    """Print the scores as JSON and nothing else."""


@command(Evaluate)
def run(settings: Evaluate) -> int:
    """Run the command; 0 if it was scored, 2 on wrong use."""
    if not settings.data:
        raise UsageError("no data to score", fix="stayfinite evaluate MODEL pairs.csv, or valid.src valid.tgt")
    from stayfinite.recipes.seq2seq.pairs import read_pairs, to_score
    from stayfinite.recipes.seq2seq.tables import Columns
    from stayfinite.recipes.seq2seq.translating import Asked, find_model, load_translator, write_table
    from stayfinite.recipes.settings import require
    from stayfinite.report.progress import counting_progress

    require(settings, at_least={1: ("beams", "batch_size")})
    trained = find_model(settings.model)
    usual = Columns(source=trained.settings["source"], target=trained.settings["target"])
    pairs = read_pairs(settings.data, Columns(source=settings.source, target=settings.target), usual=usual)
    known = to_score(pairs)
    if not known:
        raise UsageError(f"{', '.join(settings.data)}: no row has a target", fix="--target NAME")
    translator = load_translator(trained, device=settings.device, batch_size=settings.batch_size)
    with counting_progress("translating", quiet=settings.json) as progress:
        scores, translations = translator.evaluate(known, beams=settings.beams, progress=progress)
    if settings.output is not None:
        rows = [[pair.source, pair.target] for pair in known]
        write_table(Asked(names=["source", "target"], rows=rows, source="source"), translations, settings.output)
    if settings.json:
        print(json.dumps(tagged("evaluation", {"version": 1, **scores.to_json(), "beams": settings.beams})))
    else:
        print(scores)
        if len(known) < len(pairs):
            print(f"{len(pairs) - len(known)} rows without a target are skipped")
    return 0
