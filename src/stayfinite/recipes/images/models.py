"""Load a model in fp32, bf16, 8 or 4 bits, or build a small LLaVA; choose its trained part and rates, save it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from stayfinite.errors import UsageError
from stayfinite.recipes.models import is_built_here, keep_trainable, peft_for, quantized, quiet_transformers
from stayfinite.recipes.running.directories import write_whole
from stayfinite.recipes.settings import Refusing

Base = Literal["fp32", "bf16", "8bit", "4bit"]
PROJECTOR = "multi_modal_projector"
TO_LOAD = "a directory from save_pretrained, a hub name (with network), or --model tiny"
LANGUAGE, VISION = "language_model", "vision_tower"


def load_processor(name: str, *, cache_dir: str | None = None) -> Any:
    """Tokenizer and image processor of a model, from a directory or hub. Raises UsageError if not found."""
    from transformers import AutoProcessor

    with Refusing(f"cannot load the processor of {name!r}", TO_LOAD):
        processor = AutoProcessor.from_pretrained(name, cache_dir=cache_dir)
    if not hasattr(processor, "image_processor") or not hasattr(processor, "image_token"):
        raise UsageError(f"{name!r} has no processor for text and images", fix="a LLaVA model, such as --model tiny")
    return processor


def load_model(name: str, *, base: Base, device: torch.device, cache_dir: str | None = None) -> Any:
    """A LLaVA-style model from a directory or hub, on its device.

    Arguments:
        base: precision of the stored weights; `fp32` overrides the files.

    Raises:
        UsageError: not found, or another architecture.
    """
    from transformers import AutoModelForImageTextToText

    options: dict[str, Any] = {"dtype": torch.bfloat16 if base == "bf16" else torch.float32, "cache_dir": cache_dir}
    if base in ("8bit", "4bit"):
        # The projector is trained and the head decides the answer: do not quantize them.
        kept = [f".*{part}" for part in (PROJECTOR, "lm_head", VISION)]
        options |= {"quantization_config": quantized(base, f"--base {base}", kept), "device_map": {"": device}}
    with Refusing(f"cannot load the model of {name!r}", TO_LOAD), quiet_transformers():
        model: Any = AutoModelForImageTextToText.from_pretrained(name, **options)
    keep_trainable(model)
    missing = [part for part in (PROJECTOR, LANGUAGE, VISION) if _part(model, part) is None]
    if missing:
        raise UsageError(
            f"{name!r} ({type(model).__name__}) has no {', '.join(missing)}: it is not built like LLaVA",
            fix="a LLaVA model, such as llava-hf/llava-1.5-7b-hf, or --model tiny",
        )
    return model if base in ("8bit", "4bit") else model.to(device)


def add_lora(model: Any, *, rank: int, alpha: float, dropout: float, vision: bool = False) -> Any:
    """Add adapters to every linear layer of the language model. The projector is trained whole, the rest is frozen.

    Arguments:
        vision: also train the vision tower whole; it is saved with the adapters.
    """
    peft = peft_for("LoRA")
    targets = [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear) and f"{LANGUAGE}." in name
    ]
    settings = peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets,
        modules_to_save=[PROJECTOR, VISION] if vision else [PROJECTOR], task_type="CAUSAL_LM",
    )  # fmt: skip
    adapted: Any = peft.get_peft_model(model, settings)
    for _, parameter in adapted.named_parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()  # trained weights stay in full precision
    return adapted


def choose_trained(model: Any, *, vision: bool) -> None:
    """Freeze the vision tower, or only its unused last layers: LLaVA may read an earlier one."""
    tower = _part(model, VISION)
    assert tower is not None
    copies: Any = getattr(tower, "modules_to_save", None)  # peft trains a copy next to the original
    if copies is not None:
        tower = copies["default"]
    if not vision:
        tower.requires_grad_(False)
        return
    layers = getattr(getattr(tower, "encoder", None), "layers", None)
    read = model.config.vision_feature_layer
    if layers is None or not isinstance(read, int):
        return
    used = len(layers) + 1 + read if read < 0 else read
    for layer in layers[used:]:
        layer.requires_grad_(False)
    if hasattr(tower, "post_layernorm"):
        tower.post_layernorm.requires_grad_(False)  # only the pooled output uses it


def save_model(model: Any, processor: Any, into: Path) -> None:
    """Save the processor and the model, or its adapters and projector."""
    with quiet_transformers():
        model.save_pretrained(into)
    processor.save_pretrained(into)


def load_trained(model: Any, directory: Path) -> None:
    """Load weights written by `save_model`."""
    if (directory / "adapter_config.json").exists():
        import peft
        from safetensors.torch import load_file

        state = load_file(directory / "adapter_model.safetensors")
        result: Any = peft.set_peft_model_state_dict(model, state)
        if result is not None and result.unexpected_keys:
            raise UsageError(f"{directory}: {result.unexpected_keys[0]} does not fit this model")
        return
    saved = load_model(str(directory), base="fp32", device=torch.device("cpu"))
    model.load_state_dict(saved.state_dict())


def parameters_in_words(model: nn.Module) -> str:
    """Number of trained parameters by part, in words."""
    parts = {"language model": LANGUAGE, "projector": PROJECTOR, "vision tower": VISION}
    trained = {name: sum(p.numel() for n, p in model.named_parameters() if p.requires_grad and part in n)
               for name, part in parts.items()}  # fmt: skip
    every = sum(p.numel() for p in model.parameters())
    rest = sum(p.numel() for p in model.parameters() if p.requires_grad) - sum(trained.values())
    if rest:
        trained["head"] = rest
    words = ", ".join(f"{name} {count:,}" if count else f"{name} frozen" for name, count in trained.items())
    return f"training {sum(trained.values()):,} of {every:,} parameters ({words})"


def _part(model: nn.Module, name: str) -> nn.Module | None:
    return next((module for path, module in model.named_modules() if path.rpartition(".")[2] == name), None)


def two_rates(model: nn.Module, config: Any, device: torch.device) -> Optimizer:
    """AdamW over the trained parameters, those of the projector last. Norms and biases are not decayed."""
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    groups = []
    for of_projector, rate in ((False, config.learning_rate), (True, config.projector_learning_rate)):
        own = [parameter for name, parameter in trained if (PROJECTOR in name) == of_projector]
        matrices, others = ([p for p in own if (p.ndim >= 2) == matrix] for matrix in (True, False))
        groups.append({"params": matrices, "lr": rate, "weight_decay": config.weight_decay})
        groups.append({"params": others, "lr": rate, "weight_decay": 0.0})
    present = [group for group in groups if group["params"]]
    return torch.optim.AdamW(present, betas=(0.9, 0.98), fused=device.type in ("cuda", "cpu"))


def rates_of(optimizer: Optimizer) -> tuple[float, float]:
    """Current learning rates: language model, projector."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    return rates[0], rates[-1]


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
