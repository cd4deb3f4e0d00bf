"""Use a trained model with its normalization, prefix and limits, on the texts of a table or of lines."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stayfinite.errors import UsageError
from stayfinite.inspection.data.values import as_text
from stayfinite.readers.data.opening import FORMATS, open_data
from stayfinite.readers.data.text_lines import ending, text_file
from stayfinite.recipes.models import quiet_transformers
from stayfinite.recipes.running.directories import replacing
from stayfinite.recipes.running.place import choose_device
from stayfinite.recipes.running.records import read_record
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.seq2seq.evaluating import Evaluation, Scores, score
from stayfinite.recipes.seq2seq.models import SETTINGS, load_trained
from stayfinite.recipes.seq2seq.pairs import legible, normalizer
from stayfinite.recipes.seq2seq.tables import Columns, refuse_broken, refuse_without_header, roles_in
from stayfinite.recipes.seq2seq.tokenizers import TO_USE, load_tokenizer
from stayfinite.recipes.settings import Refusing

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
    record = read_record(path, "restore it, or remove it to use defaults") if path.exists() else {}
    return {name: value for name, value in record.items() if name in DEFAULTS}


TRANSLATION = "translation"
GIVEN = "translation (given)"
"""New name of an existing `translation` column; an empty one is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Rows with a text to translate; other columns are kept."""

    names: list[str]
    rows: list[list[str]]
    source: str

    @property
    def texts(self) -> list[str]:
        at = self.names.index(self.source)
        return [row[at] for row in self.rows]


def read_texts(path: Path, source: str | None, usual: str | None = None) -> Asked:
    """Rows of a table, or lines of a text. Blank lines are kept, so that the order matches.

    Arguments:
        source: column name.
        usual: column to use if none is named and the table has it.

    Raises:
        UsageError: no such file or column.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file", fix="name a text file with one text per line, or a table")
    if FORMATS.get(ending(path), "txt") == "txt":
        with text_file(path, newline=None) as file:
            rows = [[legible(line.rstrip("\n"))] for line in file.lines()]
        return Asked(names=["source"], rows=rows, source="source")
    names: list[str] = []
    table: list[list[str]] = []
    chosen = ""
    opened = open_data([path])[0]
    for chunk in opened.chunks():
        refuse_broken(path, chunk.broken)
        if not any(chunk.columns.values()):
            continue
        if not names:
            names = list(chunk.columns)
            if source is None:
                refuse_without_header(opened, chunk.columns, (usual,), "--source NAME")
            named = source or (usual if usual in names else None)
            chosen = _source(path, chunk.columns, named)
        columns = [chunk.columns.get(name, [None] * len(chunk.lines)) for name in names]
        table += [[legible(as_text(value)) for value in row] for row in zip(*columns, strict=True)]
    if not names:
        raise UsageError(f"{path}: no rows", fix="one text per row")
    return Asked(names=names, rows=table, source=chosen)


def write_table(asked: Asked, translations: Sequence[str], into: Path | IO[str]) -> None:
    """Write a CSV with all columns and the translations, atomically. Raises UsageError if not writable."""
    if not isinstance(into, Path):
        _write(asked, translations, into)
        return
    with Refusing(str(into), "name a writable file", (OSError,)):
        into.parent.mkdir(parents=True, exist_ok=True)
        with replacing(into, newline="") as file:
            _write(asked, translations, file)


def _write(asked: Asked, translations: Sequence[str], file: IO[str]) -> None:
    kept = [
        at
        for at, name in enumerate(asked.names)
        if name != TRANSLATION or any(row[at].strip() for row in asked.rows)
    ]  # fmt: skip
    writer = csv.writer(file, lineterminator="\n")
    names = [GIVEN if asked.names[at] == TRANSLATION else asked.names[at] for at in kept]
    writer.writerow([*names, TRANSLATION])
    for row, translation in zip(asked.rows, translations, strict=True):
        writer.writerow([*(row[at] for at in kept), translation])


def _source(path: Path, columns: Mapping[str, list[Any]], named: str | None) -> str:
    """The column to translate: the named one, or the likeliest."""
    roles = roles_in(path, columns, Columns(source=named))
    found = named or (roles.source[0] if roles.source else None)
    if found is None:
        raise UsageError(
            f"{path}: cannot find the column to translate",
            fix=f"--source NAME; the columns are {', '.join(columns)}",
        )
    return found
