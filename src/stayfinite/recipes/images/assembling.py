"""Build the model for the settings of a run: loaded, or a small LLaVA (tiny CLIP, tiny LLaMA, word-level tokenizer)."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from stayfinite.recipes.images.models import add_lora, choose_trained, load_model, save_model
from stayfinite.recipes.models import is_built_here
from stayfinite.recipes.running.directories import write_whole

KEPT = "base"
"""Subdirectory for a base that was built for the run."""


def uses_lora(config: Any) -> bool:
    """Whether to train adapters rather than the whole language model."""
    return bool(config.tuning == "lora" or (config.tuning == "auto" and not is_size(config.model)))


def base_of(config: Any) -> str:
    """Where to load the base from: the run itself if it is built here."""
    return str(Path(config.output_dir) / KEPT) if is_size(config.model) else str(config.model)


def build_base(config: Any) -> None:
    """Write a base with random weights into the run, if the settings name a built-in size."""
    if is_size(config.model):
        write_whole(
            Path(base_of(config)),
            lambda into: write_base(
                into, config.model, question=config.question, answers=config.answers, image_size=config.image_size
            ),
        )


def assembled(config: Any, device: torch.device) -> Any:
    """The model on its device, with adapters if configured and only the trained part unfrozen."""
    model = load_model(base_of(config), base=config.base, device=device, cache_dir=config.cache_dir)
    lora = uses_lora(config)
    vision = config.vision == "trained" or (config.vision == "auto" and is_size(config.model) and not lora)
    if lora:
        model = add_lora(
            model, rank=config.lora_rank, alpha=config.lora_alpha, dropout=config.lora_dropout, vision=vision
        )
    choose_trained(model, vision=vision)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


SIZES = {"tiny": (96, 2, 2), "small": (256, 4, 4)}
"""Built-in values of `--model`: width, vision layers, language layers."""
is_size = partial(is_built_here, SIZES)
PATCH = 8
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<image>")
TEMPLATE = (
    "{% for message in messages %}{{ message.role | upper }} : {% for part in message.content %}"
    "{% if part.type == 'image' %}<image> {% else %}{{ part.text }} {% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT :{% endif %}"
)


def write_base(directory: Path, size: str, *, question: str, answers: Sequence[str], image_size: int) -> None:
    """Write a model with random weights and its processor into a directory, to be loaded like any other."""
    processor = _processor(question, answers, image_size)
    model = _model(size, processor, image_size)
    save_model(model, processor, directory)


def _processor(question: str, answers: Sequence[str], image_size: int) -> Any:
    from transformers import LlavaProcessor, PreTrainedTokenizerFast
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    # Works without torchvision.
    image_processor = CLIPImageProcessorPil(
        size={"shortest_edge": image_size}, crop_size={"height": image_size, "width": image_size}
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_words(question, answers), pad_token="<pad>", unk_token="<unk>", bos_token="<s>",
        eos_token="</s>", extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    return LlavaProcessor(
        image_processor=image_processor, tokenizer=tokenizer, patch_size=PATCH,
        vision_feature_select_strategy="default", num_additional_image_tokens=1, chat_template=TEMPLATE,
    )  # fmt: skip


def _words(question: str, answers: Sequence[str]) -> Any:
    """Word-level tokenizer for the words of the prompt and answers."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    split = pre_tokenizers.Whitespace()
    texts = ["USER : ASSISTANT :", question, *answers]
    words = [word for text in texts for word, _ in split.pre_tokenize_str(text)]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*SPECIAL, *words]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = split
    return tokenizer


def _model(size: str, processor: Any, image_size: int) -> Any:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    width, vision_layers, layers = SIZES[size]
    heads = width // 32 if width >= 128 else 4
    kinds: tuple[Any, Any, Any] = (CLIPVisionConfig, LlamaConfig, LlavaConfig)
    vision = kinds[0](
        hidden_size=width, intermediate_size=2 * width, num_hidden_layers=vision_layers, num_attention_heads=heads,
        image_size=image_size, patch_size=PATCH, projection_dim=width,
    )  # fmt: skip
    patches = (image_size // PATCH) ** 2
    tokenizer = processor.tokenizer
    text = kinds[1](
        vocab_size=-(-len(tokenizer) // 64) * 64, hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
        max_position_embeddings=2 * patches + 256, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    config = kinds[2](
        vision_config=vision, text_config=text, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1, image_seq_length=patches,
    )  # fmt: skip
    return LlavaForConditionalGeneration(config)
