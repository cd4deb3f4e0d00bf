"""Real tokenizers, made in a moment."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


def letters(folder: Path, alphabet: str, **config: Any) -> str:
    """A directory with a tokenizer that has a token a letter, one for what it does not know, and an end token."""
    vocabulary = {token: number for number, token in enumerate(["<unk>", "</s>", *dict.fromkeys(alphabet)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.decoder = decoders.Fuse()
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def byte_pairs(folder: Path, texts: list[str]) -> str:
    """A byte-level tokenizer.json, to which nothing is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder / "tokenizer.json")


def pieces(folder: Path, texts: list[str]) -> str:
    """A SentencePiece model."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(folder / "spiece"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return str(folder / "spiece.model")
