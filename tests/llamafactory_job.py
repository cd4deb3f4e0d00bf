"""A tiny training by LLaMA-Factory's ``run_exp``: ``main(METHOD, ACT, FOLDER)``."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback

from stayfinite.integrations.transformers import StayFinite

if find_spec("torchaudio") is None:
    # LLaMA-Factory imports it for audio alone, and PyPI's is built for CUDA.
    audio = ModuleType("torchaudio")
    audio.__spec__ = ModuleSpec("torchaudio", None)
    sys.modules["torchaudio"] = audio

from llamafactory.train.tuner import run_exp

STEPS, BAD = 10, 6
COUNTED = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class Trouble(TrainerCallback):
    """Spoils the loss of one step where it is asked to, and keeps a digest of what every step begins with."""

    def __init__(self, act: str) -> None:
        self._act, self._bad = act, False
        self.digests: list[str] = []
        self.finite = False

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **__: Any) -> None:
        def spoil(_: Any, __: Any, output: Any) -> None:
            if self._bad:
                output.loss = output.loss * math.nan

        if "nan" in self._act:
            model.register_forward_hook(spoil)

    def on_step_begin(self, args: Any, state: Any, control: Any, **training: Any) -> None:
        # Until the next step begins: a re-run of this one meets the same fault.
        self._bad = state.global_step + 1 == BAD
        self.digests.append(digest(**training))

    def on_train_end(self, args: Any, state: Any, control: Any, **training: Any) -> None:
        self.digests.append(digest(**training))
        self.finite = all(bool(weight.isfinite().all()) for weight in training["model"].parameters())


def digest(model: Any, optimizer: Any, lr_scheduler: Any, **_: Any) -> str:
    """Of weights, moments and learning rate."""
    tensors = [*model.state_dict().values()]
    for state in optimizer.state_dict()["state"].values():
        tensors.extend(each for each in state.values() if isinstance(each, torch.Tensor))
    found = hashlib.sha256(str(lr_scheduler.get_last_lr()).encode())
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def write_model(folder: Path) -> Path:
    """A Llama of a few thousand weights and its tokenizer, as a hub would give them."""
    words = ["<pad>", "<s>", "</s>", "<unk>", *COUNTED, *["Human", ":", "Assistant", "count", "on", "from"]]
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": len(words), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder)
    return folder


def write_data(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"instruction": f"count on from {COUNTED[start]}", "input": "", "output": " ".join(COUNTED[start:])}
        for start in [*range(9)] * 4
    ]
    (folder / "counting.json").write_text(json.dumps(rows))
    (folder / "dataset_info.json").write_text(json.dumps({"counting": {"file_name": "counting.json"}}))
    return folder


def main(method: str, act: str, place: str) -> None:
    torch.set_num_threads(1)
    folder = Path(place)
    trouble = Trouble(act)
    guards = [] if act.startswith("bare") else [StayFinite()]
    settings: dict[str, Any] = {
        "stage": "sft", "do_train": True, "model_name_or_path": str(write_model(folder / "model")),
        "dataset": "counting", "dataset_dir": str(write_data(folder / "data")), "template": "default",
        "finetuning_type": method, "cutoff_len": 48, "preprocessing_num_workers": 1, "output_dir": str(folder / "out"),
        "overwrite_cache": True, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": STEPS,
        "learning_rate": 1e-2, "lr_scheduler_type": "cosine", "logging_steps": 1, "save_strategy": "no", "seed": 3,
        "report_to": "none", "use_cpu": True, "dataloader_pin_memory": False,
    }  # fmt: skip
    run_exp(settings, callbacks=[*guards, trouble])
    (folder / "seen.json").write_text(json.dumps({"digests": trouble.digests, "finite": trouble.finite}))
