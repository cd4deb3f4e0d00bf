"""The tokenizer of a translation: the run's, a given one, the model's, or a newly trained one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.seq2seq.models import TO_TRAIN, is_size
from stayfinite.recipes.seq2seq.tokenizers import load_tokenizer, train_sentencepiece


def vocabulary(
    model: str,
    pairs: Sequence[Pair],
    own: Path,
    *,
    resuming: bool,
    given: str | None,
    size: int,
    prefix: str,
    seed: int,
    cache_dir: str | None,
    place: Place,
) -> Any:
    """The tokenizer. A resumed run keeps its own. If it must be trained, rank 0 trains it.

    Arguments:
        model: a size, directory or hub name.
        pairs: to train it on.
        own: where the run keeps it.
        given: a directory, a hub name, or `bytes`.
        size: vocabulary of a trained one.
        prefix: prepended to every source.
    """
    if resuming:
        return load_tokenizer(str(own))
    if given is not None:
        return load_tokenizer(given, cache_dir=cache_dir)
    if not is_size(model):
        return load_tokenizer(model, cache_dir=cache_dir, fix=f"{TO_TRAIN}; --tokenizer if it has none")
    texts = [text for pair in pairs for text in (prefix + pair.source, pair.target)]
    trained = place.together(lambda: train_sentencepiece(texts, own, size, seed=seed) if place.first else None)
    return load_tokenizer(str(own)) if trained is None else trained
