"""The tokenizer of a base: its own, or, for a model that is built here, one that is trained on the questions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.answers import CLOSE, OPEN

ROLES = ("system\n", "user\n", "assistant\n")
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int = 512) -> Any:
    """A byte-level one, which no text can defeat; digits stand alone, so that numbers are spelled one way."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # The words of the chat format stand in every row, so they get tokens of their own.
    inner.train_from_iterator(chain(texts, ROLES * 1000), trainer)
    kind: Any = PreTrainedTokenizerFast
    tokenizer = kind(
        tokenizer_object=inner, pad_token=PAD, bos_token=START, eos_token=END, clean_up_tokenization_spaces=False
    )
    # Said in one token each, and still seen when special tokens are left out of a text.
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in (OPEN, CLOSE)])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def load_tokenizer(name: str | Path, **options: Any) -> Any:
    """The tokenizer of a directory or of a hub's model.

    Raises:
        UsageError: there is none, or it has no end mark.
    """
    from transformers import AutoTokenizer

    kind: Any = AutoTokenizer
    try:
        tokenizer = kind.from_pretrained(str(name), **options)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot load the tokenizer of {name}: {str(error).splitlines()[0]}",
            fix="a directory with tokenizer.json, or a hub name (with network)",
        ) from error
    return ready(tokenizer, str(name))


def ready(tokenizer: Any, name: str) -> Any:
    """The tokenizer with an end mark and something to pad with.

    Padding may be the end mark itself: labels are masked by place, never by token, so the end is still learned.
    """
    if tokenizer.eos_token_id is None:
        raise UsageError(
            f"the tokenizer of {name} has no eos_token: the model could not learn to stop",
            fix="set eos_token in its tokenizer_config.json",
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
