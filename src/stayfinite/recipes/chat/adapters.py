"""Base and adapter of a run; the adapter saved, and loaded again only where it fits, by a fingerprint of the base."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stayfinite.core.policy import Precision
from stayfinite.errors import PoisonedState, UsageError
from stayfinite.recipes.chat.bases import Base, build_base, is_size, load_base, train_tokenizer
from stayfinite.recipes.chat.data import task_of
from stayfinite.recipes.chat.prompts import Example
from stayfinite.recipes.chat.questions import Question
from stayfinite.recipes.models import peft_for
from stayfinite.recipes.running import records
from stayfinite.recipes.running.directories import write_whole
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.settings import Refusing

WEIGHTS, CONFIG, RECORD = "adapter_model.safetensors", "adapter_config.json", "sft.json"
VERSION = 1
NAME_IT = "name its base: --base NAME, or --model NAME in training"


def attach(base: Any, *, rank: int, alpha: float, dropout: float, head: bool = False) -> Any:
    """A fresh adapter on every linear layer of a base, whose own weights are frozen.

    Arguments:
        head: adapt the output layer too; for a base that was never trained.
    """
    peft = peft_for("LoRA fine-tuning")
    targets: str | list[str] = "all-linear"
    if head:
        linear = (name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear))
        targets = sorted({name.rpartition(".")[2] for name in linear})
    settings = peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets, task_type="CAUSAL_LM", bias="none"
    )
    return peft.get_peft_model(base, settings)


def prepare_quantised(base: Any) -> Any:
    """A base in 8 or 4 bits as adapters need it: what is not quantized in float32, everything frozen."""
    return peft_for("LoRA fine-tuning").prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)


def spare_memory(model: Any) -> None:
    """Compute activations twice instead of keeping them; inputs require gradients, or none would flow."""
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False


def save_adapter(
    model: Any, tokenizer: Any, directory: Path, record: Mapping[str, Any], *, instead_of: Path | None = None
) -> None:
    """Write the adapter, its tokenizer, and what it was trained on and for.

    Arguments:
        instead_of: the directory that this one will take the place of; by default itself.

    Raises:
        UsageError: it is fresh and a trained one lies there, which is then left alone.
    """
    place = instead_of or directory
    if is_fresh(weights_of(model)) and holds_trained(place):
        raise UsageError(
            f"{place} holds a trained adapter; an untrained one was not saved over it", fix="name another directory"
        )
    # An output layer that is adapted is still the base's: only the adapter is written.
    model.save_pretrained(str(directory), save_embedding_layers=False)
    tokenizer.save_pretrained(str(directory))
    text = json.dumps({"version": VERSION} | dict(record), indent=1, ensure_ascii=False)
    (directory / RECORD).write_text(text, encoding="utf-8")


def adapter_in(place: str | Path) -> Path:
    """The best adapter of a run, or the directory itself."""
    inside = Path(place) / "best"
    return inside if (inside / WEIGHTS).is_file() and not (Path(place) / WEIGHTS).is_file() else Path(place)


def read_record(directory: str | Path) -> dict[str, Any]:
    """What an adapter of this program was trained on and for.

    Raises:
        UsageError: there is no adapter, or nothing is said about it.
    """
    place = Path(directory)
    for name in (CONFIG, WEIGHTS):
        if not (place / name).is_file():
            raise UsageError(f"no adapter: {name} is missing in {place}", fix="name the --output-dir of `sft train`")
    return records.read_record(place / RECORD, "restore it, or train again") if (place / RECORD).exists() else {}


def load_adapter(base: Any, directory: str | Path, *, trainable: bool = False) -> Any:
    """A trained adapter, or the best one of a run, on its base.

    Raises:
        UsageError: it was trained on another base, its shapes do not fit, or it is all zeros.
        PoisonedState: it holds NaN or infinity.
    """
    place = adapter_in(directory)
    record = read_record(place)
    weights = read_weights(place)
    check_weights(weights, place)
    known = record.get("base", {}).get("fingerprint")
    present = fingerprint(base)
    if known is not None and known != present:
        raise UsageError(
            f"{place} was trained on another base ({_base_in_words(record, place)}, fingerprint {known}, here "
            f"{present})",
            fix=NAME_IT,
        )
    _check_shapes(base, weights, place)
    from peft import PeftModel

    return PeftModel.from_pretrained(base, str(place), is_trainable=trainable)


def read_weights(directory: Path) -> dict[str, Tensor]:
    """The adapter's tensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with Refusing(f"cannot read {directory / WEIGHTS}", "copy or train it again", (OSError, SafetensorError)):
        return load_file(directory / WEIGHTS)


def check_weights(weights: Mapping[str, Tensor], place: Path) -> None:
    """Refuse an adapter that is poisoned, or says nothing."""
    bad = [name for name, tensor in weights.items() if not bool(tensor.isfinite().all())]
    if bad:
        raise PoisonedState(
            f"{place / WEIGHTS} holds NaN or inf in {bad[0]}" + (f" and {len(bad) - 1} more" if bad[1:] else ""),
            fix="use an earlier one: `stayfinite scan` names the newest good one",
        )
    if is_fresh(weights):
        raise UsageError(
            f"{place / WEIGHTS} is all zeros: this adapter changes nothing",
            fix="an untrained adapter may have replaced it: use a backup, or train again",
        )


def take_adapter(model: Any, directory: Path) -> None:
    """Give the living adapter the weights of a saved one, where there is one."""
    if not (directory / WEIGHTS).is_file():
        return
    from peft import set_peft_model_state_dict

    set_peft_model_state_dict(model, read_weights(directory))


def weights_of(model: Any) -> dict[str, Tensor]:
    """The living adapter's tensors."""
    return {name: tensor.detach() for name, tensor in model.named_parameters() if "lora_" in name}


def is_fresh(weights: Mapping[str, Tensor]) -> bool:
    """Whether every second factor is zero, as before the first step: such an adapter changes nothing."""
    second = [tensor for name, tensor in weights.items() if "lora_B" in name or "lora_embedding_B" in name]
    return not any(bool(tensor.any()) for tensor in second)


def holds_trained(directory: Path) -> bool:
    """Whether there is an adapter that has learned something."""
    return (directory / WEIGHTS).is_file() and not is_fresh(read_weights(directory))


def _base_in_words(record: Mapping[str, Any], place: Path) -> str:
    name = str(record["base"].get("model"))
    return str((place / name).resolve()) if name.startswith("../") else name


def _check_shapes(base: Any, weights: Mapping[str, Tensor], place: Path) -> None:
    modules = dict(base.named_modules())
    for name, tensor in weights.items():
        target, _, part = name.removeprefix("base_model.model.").partition(".lora_")
        if part[:1] not in ("A", "B") or tensor.ndim != 2:
            continue
        module = modules.get(target)
        wanted = getattr(module, "in_features" if part[0] == "A" else "out_features", None)
        given = tensor.shape[1] if part[0] == "A" else tensor.shape[0]
        if module is None or (wanted is not None and wanted != given):
            found = "is not in this base" if module is None else f"has {wanted}, the adapter {given}"
            raise UsageError(f"{place} does not fit: {target} {found}", fix=NAME_IT)


SAMPLED = 256
"""Numbers that are looked at in each tensor."""


def fingerprint(model: Any) -> str:
    """Twelve characters that another base does not have.

    Made from the shape of the model and from samples of its embedding and its norms: those stay as they are when the
    matrices are stored in 8 or 4 bits, and differ between two trainings of one architecture.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = inner.config
    digest = hashlib.blake2b(digest_size=6)
    shape = [getattr(config, name, None) for name in ("model_type", "vocab_size", "hidden_size", "num_hidden_layers")]
    digest.update(repr(shape).encode())
    vectors = [tensor for name, tensor in inner.named_parameters() if tensor.ndim == 1 and "lora_" not in name]
    for tensor in (inner.get_input_embeddings().weight, *vectors):
        digest.update(_sample(tensor))
    return digest.hexdigest()


def _sample(tensor: Tensor) -> bytes:
    flat = tensor.detach().flatten()
    places = torch.linspace(0, len(flat) - 1, min(SAMPLED, len(flat)), dtype=torch.float64).long()
    # To bf16: a base that is loaded in half precision for use is still the same.
    return flat[places.to(flat.device)].to("cpu", torch.bfloat16).view(torch.int16).numpy().tobytes()


KEPT_BYTES = 160
"""Bytes of activations for each token, layer and hidden unit, about: some forty numbers in fp32."""
KEPT = "base"
"""Where a run keeps a base that was built for it."""


def base_of(
    config: Any, place: Place, questions: Sequence[Question], say: Callable[[str], None] = lambda _: None
) -> Base:
    """The base of a run: loaded, or built once, kept in the run's directory, and loaded from there ever after."""
    if not is_size(config.model):
        return load_base(config.model, bits=config.bits, cache_dir=config.cache_dir, say=say)
    kept = Path(config.output_dir) / KEPT
    if place.first and not (kept / "config.json").is_file():
        tokenizer = train_tokenizer(text for question in questions for text in (question.text, question.answer))
        write_whole(kept, build_base(config.model, tokenizer).save)
    place.wait()
    # The same way in every process and at every launch, so that nothing depends on who built it.
    return load_base(str(kept), bits=config.bits)


def name_of_base(config: Any) -> str:
    """How an adapter names its base: as it was asked for, or by the way from ``best/`` to where the run keeps it."""
    return f"../{KEPT}" if is_size(config.model) else str(config.model)


def record_of(config: Any, base: str, mark: str, new_tokens: int) -> dict[str, Any]:
    """What is saved with an adapter, for its use.

    Arguments:
        base: its name, as seen from the adapter.
        mark: fingerprint of the base.
        new_tokens: most tokens of an answer.
    """
    return {
        "base": {"model": base, "fingerprint": mark, "bits": config.bits}, "system": config.system,
        "max_length": config.max_length, "task": None if config.train else task_of(config), "new_tokens": new_tokens,
        "seed": config.seed,
    }  # fmt: skip


def adapted(config: Any, base: Base, device: torch.device, precision: Precision, *, longest: int | None = None) -> Any:
    """The base with the adapter that is to be trained.

    Arguments:
        longest: tokens of the longest row; by default as many as a row may have.
    """
    model = base.model
    if config.bits != "full":
        model = prepare_quantised(model)
    elif config.base_dtype == "bf16" or (config.base_dtype == "auto" and precision == "bf16"):
        model = model.to(torch.bfloat16)
    if config.adapter is not None:
        model = load_adapter(model, config.adapter, trainable=True)
    else:
        torch.manual_seed(config.seed)  # the same adapter, whether the base was built or loaded
        untrained = is_size(config.model)
        model = attach(model, rank=config.rank, alpha=config.alpha, dropout=config.dropout, head=untrained)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()  # what learns is in full precision, whatever the base is in
    if _computes_twice(config, model, device, config.max_length if longest is None else longest):
        spare_memory(model)
    return (model if config.bits != "full" else model.to(device)).train()


def _computes_twice(config: Any, model: Any, device: torch.device, longest: int) -> bool:
    """Whether activations are computed twice: where it is asked for, and not on a CPU with room for them."""
    if not config.gradient_checkpointing or device.type != "cpu":
        return bool(config.gradient_checkpointing)
    shape = model.config.get_text_config()
    tokens = config.batch_size * longest
    kept: int = KEPT_BYTES * tokens * int(shape.num_hidden_layers) * int(shape.hidden_size)
    return kept > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 4


def size_in_words(model: Any, examples: Sequence[Example]) -> str:
    """What is trained, and on how much."""
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
    tokens, learned = sum(row.length for row in examples), sum(len(row.completion) for row in examples)
    return (
        f"training {trained:,} parameters, {trained / (trained + frozen):.2%} of {trained + frozen:,}; {learned:,} "
        f"of {tokens:,} tokens supervised ({learned / tokens:.1%})"
    )
