"""Build, load, adapt and save the model, in full precision or 8 bits, and its loss."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.recipes.models import (
    is_built_here,
    loading_options,
    peft_for,
    quantized,
    quiet_transformers,
    with_cache,
)
from stayfinite.recipes.running.records import read_record
from stayfinite.recipes.seq2seq.batching import IGNORED
from stayfinite.recipes.settings import Refusing
from stayfinite.state.parts import evaluating

SIZES = {
    "tiny": {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4},
    "small": {"d_model": 384, "d_kv": 64, "d_ff": 1024, "num_layers": 6, "num_heads": 6},
    "medium": {"d_model": 512, "d_kv": 64, "d_ff": 1536, "num_layers": 6, "num_heads": 8},
    "large": {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 8, "num_heads": 12},
}
"""Built-in values of `--model`, in the words of T5Config: gated-GELU (T5 1.1) with tied embeddings."""
is_size = partial(is_built_here, SIZES)
DIRECTORY, HUB = "a directory with config.json and weights", "a hub name (with network)"
TO_TRAIN = f"{DIRECTORY}, {HUB}, or one of {', '.join(SIZES)}"
TO_USE = f"the --output-dir of a run, {DIRECTORY}, or {HUB}"
"""Valid model names for training and for inference; a size has random weights only."""


def build_t5(
    size: str,
    tokenizer: Any,
    *,
    dropout: float = 0.1,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
) -> Any:
    """A T5 of this size for this tokenizer, with random weights.

    Arguments:
        encoder_layers: overrides the size's.
        decoder_layers: overrides the size's.
    """
    from transformers import T5Config, T5ForConditionalGeneration

    layers = SIZES[size]["num_layers"]
    shape = SIZES[size] | {
        "num_layers": encoder_layers or layers, "num_decoder_layers": decoder_layers or layers,
    }  # fmt: skip
    kind: Any = T5Config  # its annotations omit common config arguments
    config = kind(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        **shape,
        feed_forward_proj="gated-gelu_pytorch_tanh",  # gated-gelu's function, in one kernel
        tie_word_embeddings=True,
        dropout_rate=dropout,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    return with_fused_norms(T5ForConditionalGeneration(config))


def load_trained(name: str, *, cache_dir: str | None = None) -> Any:
    """A trained model from a directory or hub.

    Raises:
        UsageError: not found, not an encoder-decoder, or a size, which has random weights.
    """
    if is_size(name):
        raise UsageError(f"{name!r} has random weights: it has learned nothing yet", fix=TO_USE)
    return load_seq2seq(name, cache_dir=cache_dir, fix=TO_USE)


def load_seq2seq(
    name: str,
    *,
    cache_dir: str | None = None,
    eight_bit: bool = False,
    device: str | None = None,
    fix: str = TO_TRAIN,
) -> Any:
    """A model from a directory or hub, in float32 whatever the files say.

    Arguments:
        eight_bit: keep the matrices in 8 bits, frozen.
        device: where to load it; 8-bit weights cannot be moved later.
        fix: shown if it cannot be loaded.

    Raises:
        UsageError: not found, or not an encoder-decoder.
    """
    from transformers import AutoModelForSeq2SeqLM

    options = {"dtype": torch.float32} | loading_options(name, cache_dir=cache_dir, fix=fix)
    if eight_bit:
        options["quantization_config"] = quantized("8bit", "loading in 8 bits")
        # It warns at every product that it computes in fp16, which was requested.
        logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    if device is not None:
        options["device_map"] = {"": device}
    # Damaged weights may raise anything.
    with Refusing(f"cannot load the model {name!r}", fix, (Exception,)), quiet_transformers():
        return with_fused_norms(AutoModelForSeq2SeqLM.from_pretrained(name, **options))


def fit_vocabulary(model: Any, tokenizer: Any, *, shrink: bool = False) -> int:
    """Resize the embeddings to the tokenizer; returns the number of rows added.

    Arguments:
        shrink: also remove rows a smaller tokenizer does not need; the result may be negative.
    """
    rows = int(model.get_input_embeddings().num_embeddings)
    wanted = len(tokenizer)
    if wanted <= rows and not (shrink and -(-wanted // 64) * 64 < rows):
        return 0
    model.resize_token_embeddings(wanted, pad_to_multiple_of=64 if shrink else None)
    return int(model.get_input_embeddings().num_embeddings) - rows


def with_fused_norms(model: Any) -> Any:
    """This model, its T5 norms computed by torch's `rms_norm`: one kernel instead of six, the same function."""
    for module in model.modules():
        if type(module).__name__ in ("T5LayerNorm", "MT5LayerNorm", "UMT5LayerNorm"):
            module.forward = MethodType(_fused_norm, module)
    return model


def _fused_norm(norm: Any, hidden_states: Tensor) -> Tensor:
    if norm.weight.dtype != hidden_states.dtype:
        plain: Tensor = type(norm).forward(norm, hidden_states)  # weights in half precision
        return plain
    return F.rms_norm(hidden_states, norm.weight.shape, norm.weight, norm.variance_epsilon)


def compute_twice(model: Any) -> None:
    """Enable gradient checkpointing."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False


@contextmanager
def answering(model: Any) -> Iterator[None]:
    """Dropout off and the cache on within this context: without the cache, generation is quadratic."""
    with evaluating(model), with_cache(model.config):
        yield


def load_weights(model: Any, directory: Path) -> None:
    """Load weights written by ``save_pretrained``, if there are any."""
    from safetensors.torch import load_file

    path = directory / "model.safetensors"
    if path.exists():
        model.load_state_dict(load_file(path), strict=False)


def loss_of(model: Any, smoothing: float = 0.0) -> Callable[[dict[str, Tensor]], Tensor]:
    """A function from a batch to the mean cross-entropy of its target tokens.

    Arguments:
        model: an encoder-decoder, possibly under DDP.
        smoothing: label smoothing.
    """
    whole = getattr(model, "module", model)

    def compute_loss(batch: dict[str, Tensor]) -> Tensor:
        device = next(model.parameters()).device
        batch = {name: item.to(device, non_blocking=True) for name, item in batch.items()}
        labels = batch["labels"]
        # Passing labels would make the model compute a second loss.
        logits = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=whole.prepare_decoder_input_ids_from_labels(labels),
            use_cache=False,  # avoids copying keys and values of all layers
        ).logits  # (B, T, V)
        summed = F.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing,
            reduction="sum",
        )  # fmt: skip
        return summed / (labels != IGNORED).sum().clamp(min=1)  # a rank may have only an unlabeled row

    return compute_loss


CONFIG = "adapter_config.json"


def add_adapters(
    model: Any, *, rank: int, alpha: float, dropout: float, targets: Sequence[str], eight_bit: bool, checkpointing: bool
) -> Any:
    """Add adapters, the only trained part. 8-bit weights are prepared first.

    Raises:
        UsageError: the model has no such layers.
    """
    peft = peft_for("training adapters")
    if eight_bit:
        model = peft.prepare_model_for_kbit_training(
            model,
            use_gradient_checkpointing=checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": False},
        )
    shape = peft.LoraConfig(
        task_type="SEQ_2_SEQ_LM", r=rank, lora_alpha=int(alpha), lora_dropout=dropout, target_modules=list(targets)
    )
    fix = "--lora-targets with names of linear layers: q v for T5 and mT5"
    with Refusing(f"cannot add adapters to {', '.join(targets)}", fix):
        return peft.get_peft_model(model, shape)


def is_adapter(directory: Path) -> bool:
    """Whether a directory holds adapters rather than a whole model."""
    return (directory / CONFIG).is_file()


def base_of(directory: Path) -> str:
    """Name of the adapters' base model. Raises UsageError if not recorded."""
    name = read_record(directory / CONFIG, "").get("base_model_name_or_path")
    if not name:
        raise UsageError(f"{directory / CONFIG} does not name the base model")
    return str(name)


def load_adapters(model: Any, directory: Path) -> Any:
    """The base model with adapters, for inference."""
    return peft_for("loading adapters").PeftModel.from_pretrained(model, str(directory))


SETTINGS = "translate.json"
"""Settings file next to the weights."""
SHAPE = "model"
"""Directory in a run that holds its model's config."""


def save_trained(model: Any, tokenizer: Any, config: Any, into: Path) -> None:
    """Save a model for transformers and ``stayfinite translate``."""
    model.save_pretrained(into)
    tokenizer.save_pretrained(into)
    (into / SETTINGS).write_text(json.dumps(asdict(config), indent=1, ensure_ascii=False), encoding="utf-8")


def keep_shape(model: Any, tokenizer: Any, run: Path) -> None:
    """Save a run's tokenizer and model config, without weights, for `rebuild`."""
    tokenizer.save_pretrained(run / "tokenizer")
    model.config.save_pretrained(run / SHAPE)


def rebuild(run: Path) -> Any:
    """The model of a run, with random weights. Raises UsageError if the run does not describe its model."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    with Refusing(f"{run / SHAPE} is not a valid model config", ""):
        config = AutoConfig.from_pretrained(run / SHAPE)
    return with_fused_norms(AutoModelForSeq2SeqLM.from_config(config))
