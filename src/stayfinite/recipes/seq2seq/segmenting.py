"""Subword regularization: split words into other pieces each time (Kudo 2018), so that a small corpus says more."""

from __future__ import annotations

import math
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError

SHARPNESS = 0.3
"""Inverse temperature of the sampled segmentations: texts become about an eighth longer."""
MOST = 32
"""Segmentations of a word that are drawn from."""
SPACE = "\u2581"


class Segmenter:
    """Sample segmentations from a SentencePiece vocabulary, word by word: no piece reaches over a space.

    Arguments:
        tokenizer: of the model, made from the vocabulary.
        vocabulary: the SentencePiece model file.
        seed: a second segmenter with the same seed samples the same.

    Raises:
        UsageError: there is no such vocabulary.
    """

    def __init__(self, tokenizer: Any, vocabulary: Path, *, seed: int) -> None:
        import sentencepiece

        if not vocabulary.is_file():
            raise UsageError(
                "--segmentations needs a SentencePiece vocabulary with its spiece.model",
                fix="--tokenizer RUN/tokenizer of a run that trained one, or leave out --segmentations",
            )
        self._pieces = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
        self._tokenizer = tokenizer
        self._chance = random.Random(seed)
        self._segmentations = lru_cache(maxsize=1 << 18)(self._of_word)

    def __call__(self, text: str, mark: str = "") -> list[int]:
        """Token ids of one sampled segmentation.

        Arguments:
            mark: a special token to put before the text.
        """
        ids = [self._tokenizer.convert_tokens_to_ids(mark)] if mark else []
        for word in self._pieces.normalize(text).split(SPACE):
            if word:
                choices, weights = self._segmentations(word)
                ids += choices[0] if len(choices) == 1 else self._chance.choices(choices, weights)[0]
        return [*ids, self._tokenizer.eos_token_id]

    def _of_word(self, word: str) -> tuple[list[list[int]], list[float]]:
        choices: list[list[int]] = self._pieces.nbest_encode(word, nbest_size=MOST)
        scores = [sum(map(self._pieces.get_score, choice)) for choice in choices]
        return choices, [math.exp(SHARPNESS * (score - max(scores))) for score in scores]
