"""The tokenizer: the model's own, bytes, or SentencePiece trained here."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.recipes.models import loading_options
from stayfinite.recipes.running.processes import Place

SENTINELS = 100
"""T5's sentinels, `<extra_id_0>` to `<extra_id_99>`."""
LEAST_VOCABULARY = 64
TO_TRAIN = "name a directory with tokenizer.json or spiece.model, or `bytes`; without it one is trained"
TO_USE = "put its tokenizer.json or spiece.model next to the model's weights"
LONGEST = 256
"""Longest line in characters to train a tokenizer on. Pieces never span spaces, so splitting there loses nothing, while
SentencePiece is quadratic in repetitions within a line and skips the longest lines.
"""


def train_sentencepiece(texts: Iterable[str], directory: Path, vocab_size: int, *, seed: int = 0) -> Any:
    """Train SentencePiece on these texts, save it in a directory, and load it.

    The vocabulary has ``vocab_size`` pieces, or as many as the texts allow, plus T5's sentinels.
    """
    import sentencepiece

    lines = [text for text in texts if text.strip()]
    characters = len({character for line in lines for character in line})
    if not lines:
        raise UsageError("cannot train a tokenizer without text", fix="check the data: every row is empty")
    # Every character needs its own piece, or it stays unknown.
    size = max(vocab_size, characters + LEAST_VOCABULARY)
    sentencepiece.set_random_generator_seed(seed)
    with tempfile.TemporaryDirectory() as work:
        prefix = Path(work) / "spiece"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_bounded(lines),
            model_prefix=str(prefix),
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            normalization_rule_name="nfkc",
            max_sentence_length=1 << 16,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            num_threads=2,
            minloglevel=2,
        )
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(prefix.with_suffix(".model"), directory / "spiece.model")
    return load_tokenizer(str(directory))


def load_tokenizer(name: str, *, cache_dir: str | None = None, fix: str = TO_TRAIN) -> Any:
    """A tokenizer from a directory or hub; `bytes` is ByT5's.

    Arguments:
        fix: shown if it cannot be loaded.

    Raises:
        UsageError: not found, or without its vocabulary.
        MissingExtra: reading SentencePiece files needs a missing package.
    """
    if name == "bytes":
        from transformers import ByT5Tokenizer

        return ByT5Tokenizer()
    from transformers import AutoTokenizer, T5Tokenizer

    directory = Path(name)
    pieces = (directory / "spiece.model").exists()
    bare = pieces and not (directory / "tokenizer_config.json").exists()
    if pieces and not (directory / "tokenizer.json").exists() and not _reads_sentencepiece():
        raise _without_protobuf(name)
    # T5Tokenizer(vocab_file=...) ignores the pieces (transformers 5); from_pretrained reads them.
    kind: Any = T5Tokenizer if bare else AutoTokenizer
    options = loading_options(name, cache_dir=cache_dir, fix=fix) | ({"extra_ids": SENTINELS} if bare else {})
    try:
        tokenizer = kind.from_pretrained(name, **options)
    except Exception as error:  # a damaged file may raise anything
        if "tiktoken" in str(error) and not _reads_sentencepiece():
            raise _without_protobuf(name) from error
        raise UsageError(
            f"cannot load the tokenizer {name!r}: {(str(error) or type(error).__name__).splitlines()[0]}", fix=fix
        ) from error
    if len(tokenizer) <= SENTINELS + 4:
        raise UsageError(
            f"the tokenizer {name!r} has only {len(tokenizer)} tokens: its vocabulary was not read",
            fix="give the directory that holds spiece.model, or train one here",
        )
    return tokenizer


def _reads_sentencepiece() -> bool:
    """Whether transformers can read SentencePiece files here."""
    try:
        return find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # the google namespace itself is missing
        return False


def _without_protobuf(name: str) -> MissingExtra:
    """Without protobuf, transformers mistakes the file for tiktoken's and asks for that."""
    return MissingExtra(
        f"the tokenizer {name!r} needs protobuf (SentencePiece), which is not installed",
        fix="pip install protobuf",
    )


def has_tokenizer(directory: Path) -> bool:
    """Whether a directory holds a tokenizer."""
    return any((directory / name).is_file() for name in ("tokenizer.json", "spiece.model", "tokenizer_config.json"))


def trained_once(texts: Sequence[str], directory: Path, config: Any, place: Place, *, anew: bool = False) -> Any:
    """The tokenizer in a directory; if there is none, rank 0 trains it on these texts, and all load it.

    Arguments:
        config: has ``vocab_size`` and ``seed``.
        anew: train even if there is one.
    """
    wanted = place.first and (anew or not has_tokenizer(directory))
    train = partial(train_sentencepiece, texts, directory, config.vocab_size, seed=config.seed)
    place.together(lambda: train() if wanted else None)
    # Together: rank 0 soon writes this directory again, while another rank may still be reading it.
    return place.together(lambda: load_tokenizer(str(directory)))


def sentinel_ids(tokenizer: Any) -> list[int]:
    """Ids of `<extra_id_0>`, `<extra_id_1>`, ..., up to the first missing one."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    found: list[int] = []
    for number in range(SENTINELS):
        # In mT5 they are ordinary word-initial pieces.
        names = (f"<extra_id_{number}>", f"\u2581<extra_id_{number}>")
        ids = [tokenizer.convert_tokens_to_ids(name) for name in names]
        known = [each for each in ids if isinstance(each, int) and each != unknown]
        if not known:
            break
        found.append(known[0])
    return found


def with_sentinels(tokenizer: Any) -> list[int]:
    """Ids of all sentinels. Adds them to a tokenizer that lacks them, so its model may need more rows."""
    found = sentinel_ids(tokenizer)
    if not found:
        tokenizer.add_tokens([f"<extra_id_{number}>" for number in range(SENTINELS)], special_tokens=True)
        found = sentinel_ids(tokenizer)
    return found


def check_ids(tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer larger than the embedding. Resize before this.

    Raises:
        UsageError: an id would be out of range.
    """
    rows = int(model.get_input_embeddings().num_embeddings)
    if len(tokenizer) > rows:
        raise UsageError(
            f"token ids go up to {len(tokenizer) - 1}, but the embedding ends at {rows - 1}",
            fix="model.resize_token_embeddings(len(tokenizer)), or the model's own tokenizer",
        )


def _bounded(lines: list[str], most: int = 1_000_000) -> Iterator[str]:
    """At most a million lines, evenly spaced: more makes it slower, not better.

    Pieces of long lines are deduplicated: repetition within a text adds no words.
    """
    stride = max(1, -(-len(lines) // most))
    chosen = lines[::stride]
    yield from (line for line in chosen if len(line) <= LONGEST)
    yield from dict.fromkeys(piece for line in chosen if len(line) > LONGEST for piece in pieces(line, LONGEST))


def pieces(line: str, longest: int) -> Iterator[str]:
    """Split a line into pieces of at most ``longest`` characters, at spaces if possible."""
    start = 0
    while len(line) - start > longest:
        space = line.rfind(" ", start + 1, start + longest)
        end = start + longest if space < 0 else space
        yield line[start:end]
        start = end if space < 0 else end + 1
    yield line[start:]
