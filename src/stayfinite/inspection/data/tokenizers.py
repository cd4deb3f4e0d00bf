"""Tokenizers of all kinds: how they measure text, and how they are loaded from disk."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from stayfinite.errors import MissingExtra, UsageError

LONGEST_TEXT = 400_000  # characters passed to a tokenizer; the rest exceeds any limit


class Encoded(NamedTuple):
    """Encoding statistics per text."""

    lengths: list[int]
    unknown: list[int]
    """Unknown tokens per text; empty if there are none."""
    largest: list[int]
    """Largest id per text; empty if no id can be too large."""


class Bytes:
    """One token per byte, plus an end token: ByT5 and similar."""

    unit = "bytes"
    unknown = False
    """Whether it has an unknown token."""

    def encoded(self, texts: Sequence[str]) -> Encoded:
        """Lengths include the special tokens that the tokenizer adds."""
        lengths = [(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))) + 1 for text in texts]
        return Encoded(lengths, [], [])

    def spelled(self, character: str) -> str | None:
        """Encode and decode a character; None if it is unknown."""
        return character


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A tokenizer with a vocabulary, of any library."""

    encode: Callable[[list[str]], Sequence[list[int]]]
    """Texts to ids, with special tokens."""
    spell: Callable[[str], list[int]]
    """A text to ids, without special tokens."""
    decode: Callable[[list[int]], str] | None
    """None if separate pieces prove nothing."""
    size: int
    unknown_id: int | None
    ends: int = 0
    """End tokens that `encode` leaves out."""
    unit: str = "tokens"

    @property
    def unknown(self) -> bool:
        return self.unknown_id is not None

    def encoded(self, texts: Sequence[str]) -> Encoded:
        found = self.encode([_clean(text) for text in texts])
        return Encoded(
            [len(ids) + self.ends for ids in found],
            [ids.count(self.unknown_id) for ids in found] if self.unknown_id is not None else [],
            [max(ids, default=-1) for ids in found],
        )

    def spelled(self, character: str) -> str | None:
        ids = self.spell(_clean(character))
        if self.unknown_id is not None and self.unknown_id in ids:
            return None
        return character if self.decode is None else str(self.decode(ids)).strip(" ")


Measure = Bytes | Vocabulary


def fast(tokenizer: Any, unknown: str | None) -> Vocabulary:
    """A tokenizer of the tokenizers library."""
    # Disable padding and truncation to get true lengths.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    return Vocabulary(
        encode=lambda texts: [encoding.ids for encoding in encode(texts)],
        spell=lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        decode=partial(tokenizer.decode, skip_special_tokens=False) if tokenizer.decoder is not None else None,
        size=int(tokenizer.get_vocab_size(with_added_tokens=True)),
        unknown_id=tokenizer.token_to_id(unknown) if unknown else None,
    )


def pieces(processor: Any) -> Vocabulary:
    """A SentencePiece model with an end token."""
    return Vocabulary(
        encode=processor.encode,
        spell=processor.encode,
        decode=processor.decode,
        size=int(processor.vocab_size()),
        unknown_id=processor.unk_id(),
        ends=1,
    )


def slow(tokenizer: Any) -> Vocabulary:
    """A tokenizer that only transformers can build."""
    return Vocabulary(
        encode=lambda texts: tokenizer(texts, truncation=False, verbose=False)["input_ids"],
        spell=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
        decode=tokenizer.decode,
        size=len(tokenizer),
        unknown_id=tokenizer.unk_token_id,
    )


def _clean(text: str) -> str:
    """Shorten the text and replace lone surrogates, which tokenizers reject."""
    text = text[:LONGEST_TEXT]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8", "replace")


UNLIMITED = 1_000_000  # a `model_max_length` of this or more means no limit
SEQ2SEQ = ("t5", "bart", "marian", "pegasus", "m2m", "nllb", "fsmt", "blenderbot", "prophetnet", "opus")
PIECES = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "source.spm")
_AGAIN = "save it again with tokenizer.save_pretrained, or download it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A measure and the metadata in its directory."""

    name: str
    measure: Measure
    limit: int | None = None
    """The tokenizer's `model_max_length`."""
    rows: int | None = None
    """Rows of the model's embedding from config.json, else the tokenizer's vocabulary size."""
    two_sided: bool = False
    """Encoder-decoder: source and target have separate limits."""
    positions: int | None = None
    """The model's `max_position_embeddings`, if positions are learned."""


def tokenizer_of(name: str) -> Tokenizer:
    """Load a tokenizer: `bytes`, a file, a directory, or a model in the local cache."""
    path = Path(name).expanduser()
    if not path.exists():
        if name.lower() in ("bytes", "byte", "utf-8") or "byt5" in name.lower():
            return Tokenizer(name=name, measure=Bytes(), two_sided=True)
        path = _cached(name)
    if path.is_dir():
        return _from_directory(path, name)
    if path.suffix == ".json" and path.name == "config.json":
        return _from_directory(path.parent, name)
    measure = _from_json(path, None) if path.suffix == ".json" else _from_pieces(path)
    return Tokenizer(name=name, measure=measure, rows=measure.size, two_sided=_two_sided(name))


def _two_sided(*words: str) -> bool:
    return any(kind in word.lower() for word in words for kind in SEQ2SEQ)


def _from_directory(path: Path, name: str) -> Tokenizer:
    config, settings = _read(path / "config.json"), _read(path / "tokenizer_config.json")
    kind = str(settings.get("tokenizer_class") or "")
    limit = settings.get("model_max_length")
    vocabulary = config.get("vocab_size", (config.get("text_config") or {}).get("vocab_size"))
    measure: Any
    if kind.startswith(("ByT5", "Perceiver", "Canine")):
        measure = Bytes()
    elif (path / "tokenizer.json").is_file():
        measure = _from_json(path / "tokenizer.json", settings)
    elif found := [path / file for file in PIECES if (path / file).is_file()]:
        measure = _from_pieces(found[0])
    elif (path / "vocab.txt").is_file() or (path / "vocab.json").is_file() or settings:
        measure = _through_transformers(path)
    else:
        raise UsageError(
            f"no tokenizer in {path}: no tokenizer.json, SentencePiece model or vocab.txt",
            fix="name a directory from tokenizer.save_pretrained, a tokenizer.json, a .model file, or `bytes`",
        )
    table = not config.get("rope_theta") and not config.get("rope_scaling") and not config.get("rope_parameters")
    positions = config.get("max_position_embeddings") if table else None
    own = getattr(measure, "size", None)
    return Tokenizer(
        name=name,
        measure=measure,
        limit=limit if isinstance(limit, int) and 0 < limit < UNLIMITED else None,
        rows=vocabulary if isinstance(vocabulary, int) else own,
        two_sided=bool(config.get("is_encoder_decoder")) or _two_sided(kind, str(config.get("model_type", ""))),
        positions=positions if isinstance(positions, int) else None,
    )


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}", fix=_AGAIN) from error
    return found if isinstance(found, dict) else {}


def _from_json(path: Path, settings: dict[str, Any] | None) -> Vocabulary:
    with _read_with("tokenizers", f"counting tokens with {path.name}", f"{path} is not a valid tokenizer") as library:
        tokenizer = library.Tokenizer.from_file(str(path))
        model = json.loads(path.read_text(encoding="utf-8")).get("model") or {}
    unknown = model.get("unk_token")
    if unknown is None and isinstance(model.get("unk_id"), int) and not model.get("byte_fallback"):
        unknown = tokenizer.id_to_token(model["unk_id"])
    named = (settings or {}).get("unk_token")
    if unknown is None and model.get("type") in ("WordPiece", "WordLevel"):
        unknown = named.get("content") if isinstance(named, dict) else named
    return fast(tokenizer, unknown)


def _from_pieces(path: Path) -> Vocabulary:
    wrong = f"{path} is not a valid SentencePiece model"
    with _read_with("sentencepiece", f"counting tokens with {path.name}", wrong) as library:
        return pieces(library.SentencePieceProcessor(model_file=str(path)))


def _through_transformers(path: Path) -> Vocabulary:
    wrong = f"{path}: transformers cannot load a tokenizer from it"
    with _read_with("transformers", f"the tokenizer in {path}", wrong) as library:
        return slow(library.AutoTokenizer.from_pretrained(str(path), local_files_only=True))


@contextmanager
def _read_with(name: str, what_for: str, wrong: str) -> Iterator[Any]:
    """Context with the library that reads a tokenizer; whatever it raises says that the file is wrong."""
    with MissingExtra.unless(name, extra="hf", what_for=what_for):
        library = import_module(name)
    try:
        yield library
    except Exception as error:  # bare exceptions, RuntimeError, TypeError and errors of their own
        raise UsageError(f"{wrong}: {str(error)[:160]}", fix=_AGAIN) from error


def _cached(name: str) -> Path:
    """The newest snapshot of a hub model in the local cache."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    snapshots = cache / f"models--{name.strip('/').replace('/', '--')}" / "snapshots"
    try:
        found = sorted((path for path in snapshots.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    except OSError:
        found = []
    if not found:
        raise UsageError(
            f"tokenizer {name!r} is not a file, a directory or in the local cache; nothing is downloaded",
            fix="name its directory, its tokenizer.json or .model file, or `bytes`; or load it once while online",
        )
    return found[-1]
