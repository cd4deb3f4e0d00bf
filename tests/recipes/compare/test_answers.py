from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlavaProcessor, PreTrainedTokenizerFast

from stayfinite.errors import UsageError
from stayfinite.recipes.images.losses import prompt_for
from stayfinite.recipes.images.models import load_processor, write_base
from stayfinite.recipes.images.pairs import LABELS

QUESTION = "Which one is larger?"


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory: Path = tmp_path_factory.mktemp("base")
    write_base(directory, "tiny", question=QUESTION, answers=LABELS, image_size=16)
    return load_processor(str(directory))


def _with_tokenizer(processor: Any, tokenizer: Tokenizer) -> Any:
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>",
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    return LlavaProcessor(
        image_processor=processor.image_processor, tokenizer=wrapped, patch_size=8,
        vision_feature_select_strategy="default", num_additional_image_tokens=1,
    )  # fmt: skip


def _letters(*, closed: bool = False) -> Tokenizer:
    """A tokenizer of single bytes, as ByT5's is; it may close every text with an end mark."""
    signs = ["<pad>", "<unk>", "</s>", "<image>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({sign: number for number, sign in enumerate(signs)}, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if closed:
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def test_the_answers_are_the_tokens_that_the_tokenizer_gives_them(processor: Any) -> None:
    prompt = prompt_for(processor, QUESTION, LABELS)
    assert processor.tokenizer.convert_ids_to_tokens(list(prompt.answers)) == list(LABELS)
    assert int((prompt.ids == processor.image_token_id).sum()) == 2 * 4  # two images of 16 x 16 in patches of 8


def test_answers_that_begin_with_the_same_token_are_refused(processor: Any) -> None:
    letters = _with_tokenizer(processor, _letters())
    with pytest.raises(UsageError, match="they begin with 'F', 'S', 'S'"):
        prompt_for(letters, QUESTION, LABELS)


@pytest.mark.parametrize("closed", [False, True])
def test_other_words_are_looked_up_also_where_every_text_is_closed(processor: Any, closed: bool) -> None:
    letters = _with_tokenizer(processor, _letters(closed=closed))
    prompt = prompt_for(letters, QUESTION, ("A", "B", "C"))
    assert [letters.tokenizer.decode([token]) for token in prompt.answers] == ["A", "B", "C"]
    assert int(prompt.ids[0, -1]) != letters.tokenizer.eos_token_id


def test_a_word_that_the_tokenizer_does_not_know_is_refused(processor: Any) -> None:
    with pytest.raises(UsageError, match="share a first token"):
        prompt_for(processor, QUESTION, ("First", "Second", "Neither"))


def test_a_processor_without_a_chat_template_is_asked_as_llava_is(processor: Any) -> None:
    letters = _with_tokenizer(processor, _letters())
    assert prompt_for(letters, QUESTION, ("A", "B", "C")).text == (f"USER: <image>\n<image>\n{QUESTION} ASSISTANT:")
