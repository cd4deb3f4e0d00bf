"""The tokenizer of a language model: the run's, a given one, the model's, or a newly trained one."""

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
    """The tokenizer. If it must be trained, rank 0 trains it and all load it.

    Arguments:
        model: a size, directory or hub name.
        texts: to train it on.
        own: where the run keeps it.
        given: a directory that holds one, or to save it in.
        size: vocabulary of a trained one.
    """
    kept = place.from_first(has_tokenizer(own))  # asked once: rank 0 may write it meanwhile
    chosen = own if kept or given is None else Path(given)  # a resumed run keeps its vocabulary
    if chosen == own and not kept and not is_size(model):
        return load_tokenizer(model, cache_dir=cache_dir)
    missing = place.first and not has_tokenizer(chosen)
    place.together(lambda: train_sentencepiece(texts, chosen, size, seed=seed) if missing else None)
    return load_tokenizer(str(chosen))
