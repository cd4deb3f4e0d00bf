"""A base with its adapter, loaded to be asked: in the precision that was asked for, with the format of its training."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.recipes.chat.adapters import adapter_in, load_adapter, read_record
from stayfinite.recipes.chat.bases import Bits, is_size, load_base
from stayfinite.recipes.chat.prompts import Prompting
from stayfinite.recipes.running.place import PrecisionChoice, choose_device, choose_precision

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NEW_TOKENS, LENGTH = 128, 512
"""For a model of which no training says more."""


@dataclass(frozen=True, kw_only=True)
class Using:
    """Settings of the programs that ask a model.

    Attributes:
        adapter: Run of `sft train` or its adapter: runs/sft, runs/sft/best.
        new_tokens: Most tokens per answer; by default as in training.
        system: System text before every question; by default as in training.
        precision: Dtype of the weights; auto is bf16 if the GPU supports it, else fp32.
        bits: How the base is stored: full, 8bit or 4bit; by default as in the adapter's training.
        device: cpu or cuda; by default the best available.
    """

    adapter: str | None = None
    new_tokens: int | None = None
    system: str | None = None
    precision: PrecisionChoice = "auto"
    bits: Bits | None = None
    device: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A model that can be asked."""

    model: Any
    prompting: Prompting
    new_tokens: int
    limit: int
    task: str | None
    """The built-in task that it was trained on."""


def make_ready(config: Using, base: str | None, *, without_adapter: bool = False) -> Ready:
    """Load what is to be asked.

    Arguments:
        config: says which adapter (a run of `sft train`, or its adapter), on which device and in which precision (auto
            is bf16 on a card that has it, else fp32); and where it has them, in how many bits the base is stored, most
            tokens of an answer, and what is said before every question: by default all as in the adapter's training.
        base: what to put it on; by default what it was trained on. Without an adapter, the model itself.
        without_adapter: load the base alone, with the format of the adapter's training.

    Raises:
        UsageError: nothing was named, or the two do not fit.
    """
    if config.adapter is None and base is None:
        raise UsageError("no adapter and no model named", fix="--adapter runs/sft/best")
    if base is not None and is_size(base):
        raise UsageError(
            f"{base} has random weights: there is nothing to ask",
            fix="--adapter runs/sft/best, a directory, or a hub name",
        )
    adapter = None if config.adapter is None else str(adapter_in(config.adapter))
    record = {} if adapter is None else read_record(adapter)
    place = choose_device(config.device)
    stored = _bits_of(record, str(adapter)) if config.bits is None else config.bits
    loaded = load_base(base or base_named(record, str(adapter)), bits=stored, device=place)
    model = loaded.model
    if adapter is not None and not without_adapter:
        model = load_adapter(model, adapter)
    dtype = DTYPES[choose_precision(config.precision, place, lambda _: None)]
    # The check that adapter and base fit was made in full precision.
    model = (model.to(place, dtype) if stored == "full" else _rest_in(model, dtype)).eval()
    said = str(record.get("system", "")) if config.system is None else config.system
    return Ready(
        model=model, prompting=Prompting(tokenizer=loaded.tokenizer, system=said), task=record.get("task"),
        new_tokens=config.new_tokens or int(record.get("new_tokens", NEW_TOKENS)),
        limit=int(record.get("max_length", LENGTH)),
    )  # fmt: skip


def _bits_of(record: dict[str, Any], adapter: str) -> Bits:
    """How the base was stored in the adapter's training."""
    known = record.get("base", {}).get("bits", "full")
    bits: Bits = known if known in ("8bit", "4bit") else "full"
    if bits != "full" and find_spec("bitsandbytes") is None:
        raise MissingExtra(
            f"{adapter} was trained on a base in {bits}, which needs bitsandbytes (not installed)",
            fix="pip install 'stayfinite[quant]', or --bits full for the full-precision base",
        )
    return bits


def _rest_in(model: Any, dtype: torch.dtype) -> Any:
    """What is not stored in 8 or 4 bits, in this dtype: such a model cannot be cast as a whole."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
    return model


def base_named(record: dict[str, Any], adapter: str) -> str:
    """The base that an adapter was trained on, as its record names it.

    Raises:
        UsageError: the record does not say, or the base is gone.
    """
    name = record.get("base", {}).get("model")
    if not name:
        raise UsageError(f"{adapter} does not record its base", fix="--base NAME")
    if str(name).startswith("../"):  # kept by the run, beside the adapter
        place = (Path(adapter) / str(name)).resolve()
        if not place.is_dir():
            raise UsageError(
                f"{adapter} needs the base in {place}, which is missing",
                fix="leave the adapter in its run's directory, or --base DIRECTORY",
            )
        return str(place)
    return str(name)
