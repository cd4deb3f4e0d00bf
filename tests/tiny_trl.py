"""Trainers of trl on a tiny model, a vocabulary of 32 words, and data made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, TrainerCallback, set_seed

from tiny_trainers import tiny_llama

COMMON = {
    "use_cpu": True, "max_steps": 6, "per_device_train_batch_size": 4, "logging_steps": 1, "learning_rate": 1e-2,
    "report_to": [], "save_strategy": "no", "disable_tqdm": True, "dataloader_pin_memory": False, "bf16": False,
    "gradient_checkpointing": False, "lr_scheduler_type": "linear", "seed": 3,
}  # fmt: skip


def tokenizer() -> Any:
    """32 words, the first four of which are padding, begin, end and unknown."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.WordLevel({f"w{i}": i for i in range(32)}, unk_token="w3"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="w0", bos_token="w1", eos_token="w2", unk_token="w3"
    )


def words(made: torch.Generator, count: int) -> str:
    return " ".join(f"w{i}" for i in torch.randint(4, 32, (count,), generator=made).tolist())


def reward_even(completions: list[str], **_: Any) -> list[float]:
    """The share of an answer's words that are even."""
    found = []
    for completion in completions:
        numbers = [int(word[1:]) for word in completion.split() if word[1:].isdigit()]
        found.append(sum(number % 2 == 0 for number in numbers) / max(1, len(numbers)))
    return found


def reward_model() -> LlamaForSequenceClassification:
    set_seed(0)
    shape = {
        "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "max_position_embeddings": 32, "pad_token_id": 0, "num_labels": 1,
    }  # fmt: skip
    return LlamaForSequenceClassification(LlamaConfig(**shape))


def model_on_disk(folder: Path) -> Any:
    """A tiny model that was loaded: from where it lies trl takes the reference, too."""
    tiny_llama().save_pretrained(folder / "base")
    return LlamaForCausalLM.from_pretrained(folder / "base")


def rows_for(kind: str, count: int = 64) -> Any:
    from datasets import Dataset

    made = torch.Generator().manual_seed(7)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        if kind in ("grpo", "rloo"):
            rows.append({"prompt": words(made, 4)})
        elif kind == "sft":
            rows.append({"input_ids": torch.randint(4, 32, (8,), generator=made).tolist()})
        elif kind == "kto":
            rows.append({"prompt": words(made, 4), "completion": " " + words(made, 3), "label": number % 2 == 0})
        else:
            rows.append({"prompt": words(made, 4), "chosen": " " + words(made, 3), "rejected": " " + words(made, 3)})
    return Dataset.from_list(rows)


def trl_trainer(kind: str, folder: Path, *callbacks: TrainerCallback, base: Any = None, **settings: Any) -> Any:
    """A trainer of trl: grpo, rloo, dpo, kto, reward or sft; ``base`` is a class of one's own derived from it."""
    import trl

    name = {"grpo": "GRPO", "rloo": "RLOO", "dpo": "DPO", "kto": "KTO", "reward": "Reward", "sft": "SFT"}[kind]
    usual: dict[str, Any] = dict(COMMON)
    more: dict[str, Any] = {}
    if kind in ("grpo", "rloo"):
        usual |= {"num_generations": 4, "max_completion_length": 6, "beta": 0.04, "temperature": 1.0}
        usual |= {"use_vllm": False}
        more["reward_funcs"] = settings.pop("reward_funcs", [reward_even])
    if kind == "dpo":
        more["ref_model"] = tiny_llama()
    args = getattr(trl, f"{name}Config")(output_dir=str(folder), **usual | settings)
    return (base or getattr(trl, f"{name}Trainer"))(
        model=reward_model() if kind == "reward" else model_on_disk(folder),
        args=args,
        train_dataset=rows_for(kind),
        processing_class=tokenizer(),
        callbacks=list(callbacks),
        **more,
    )


def signals_of(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "stayfinite" / "steps.jsonl").read_text().splitlines()
    return [json.loads(line).get("signals", {}) for line in lines]
