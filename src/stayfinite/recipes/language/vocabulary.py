"""The tokenizer of a language model: the run's own, one that was given, the model's, or one that is trained here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.models import is_size
from stayfinite.recipes.seq2seq.tokenizers import has_tokenizer, load_tokenizer, train_sentencepiece


def vocabulary(
    model: str,
    texts: Sequence[str],
    own: Path,
    *,
    given: str | None,
    size: int,
    seed: int,
    cache_dir: str | None,
    place: Place,
) -> Any:
    """The tokenizer; one that has to be trained is trained by the first process and read by all.

    Arguments:
        model: a size, a directory or a hub's name.
        texts: to train it on.
        own: where the run keeps it.
        given: a directory that holds one, or where it is to be kept.
        size: pieces of one that is trained.
    """
    kept = place.from_first(has_tokenizer(own))  # not asked by each: the first may have written it by then
    chosen = own if kept or given is None else Path(given)  # a run that goes on keeps its vocabulary
    if chosen == own and not kept and not is_size(model):
        return load_tokenizer(model, cache_dir=cache_dir)
    missing = place.first and not has_tokenizer(chosen)
    place.together(lambda: train_sentencepiece(texts, chosen, size, seed=seed) if missing else None)
    return load_tokenizer(str(chosen))
