"""Load a model in fp32, bf16, 8 or 4 bits, choose its trained part and their learning rates, save it."""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.recipes.models import keep_trainable, quantized, quiet_transformers

Base = Literal["fp32", "bf16", "8bit", "4bit"]
PROJECTOR = "multi_modal_projector"
LANGUAGE, VISION = "language_model", "vision_tower"


def load_processor(name: str, *, cache_dir: str | None = None) -> Any:
    """Tokenizer and image processor of a model, from a directory or hub. Raises UsageError if not found."""
    from transformers import AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(name, cache_dir=cache_dir)
    except (OSError, ValueError, KeyError) as error:
        raise _not_loaded("processor", name, error) from error
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
    try:
        with quiet_transformers():
            model: Any = AutoModelForImageTextToText.from_pretrained(name, **options)
    except (OSError, ValueError) as error:
        raise _not_loaded("model", name, error) from error
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
    with MissingExtra.unless("peft", extra="recipes", what_for="LoRA"):
        import peft
    targets = [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear) and f"{LANGUAGE}." in name
    ]
    kind: Any = peft.LoraConfig
    settings = kind(
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


def _not_loaded(what: str, name: str, error: Exception) -> UsageError:
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return UsageError(
        f"cannot load the {what} of {name!r}: {first}",
        fix="a directory from save_pretrained, a hub name (with network), or --model tiny",
    )


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
