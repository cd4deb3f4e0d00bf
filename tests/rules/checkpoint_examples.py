"""Runs with a fault of their checkpoint, and runs that look alike and have none."""

from rules.example import Example


def _lines(first: float, last: float, count: int, lr: float = 1e-4) -> str:
    step = (last - first) / max(1, count - 1)
    return "\n".join(
        f"{{'loss': {first + step * i:.4f}, 'grad_norm': 0.8, 'learning_rate': {lr}}}" for i in range(count)
    )


FALLING = _lines(2.4, 1.1, 12)
RESUMED = "Resuming from checkpoint runs/checkpoint-4000"

EXAMPLES: dict[str, tuple[Example, Example]] = {
    "resume-state-missing": (
        Example(
            log=f"{FALLING}\n{RESUMED}\n{_lines(1.9, 1.7, 8, lr=5e-4)}\n",
            config="resume_from_checkpoint: runs/checkpoint-4000\nsave_only_model: true\n",
        ),
        Example(
            log=f"{FALLING}\n{RESUMED}\n{_lines(1.1, 0.95, 8)}\n",
            config="resume_from_checkpoint: runs/checkpoint-4000\n",
        ),
    ),
    "poisoned-checkpoint": (
        Example(
            log="Loading checkpoint from epoch 12\nstep 1 | loss nan | grad_norm nan\nstep 2 | loss nan | "
            "grad_norm nan\n",
            config="resume: out/epoch12.pt\nprecision: fp32\n",
            observed={"checkpoint.nonfinite": ["blocks.3.mlp.weight"]},
        ),
        Example(
            log=f"{RESUMED}\n{FALLING}",
            config="resume: out/epoch12.pt\n",
            observed={"checkpoint.nonfinite": []},
        ),
    ),
    "corrupt-checkpoint": (
        Example(
            log="safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer\n",
            config="resume_from_checkpoint: out/checkpoint-900\n",
        ),
        Example(log=f"Loading checkpoint shards: 100%|##########| 3/3 [00:04<00:00]\n{FALLING}"),
    ),
    "architecture-mismatch": (
        Example(
            log="RuntimeError: Error(s) in loading state_dict for ViTForImageClassification:\n"
            "\tsize mismatch for vit.embeddings.position_embeddings: copying a param with shape torch.Size([1, "
            "577, 768]) from "
            "checkpoint, the shape in current model is torch.Size([1, 197, 768]).\n",
        ),
        Example(
            log="Some weights of BertForSequenceClassification were not initialized from the model checkpoint at "
            "bert-base-uncased and are newly initialized: ['classifier.bias', 'classifier.weight']\n"
            "You should probably TRAIN this model on a down-stream task to be able to use it for predictions and "
            "inference.\n"
            f"{FALLING}",
        ),
    ),
    "adapter-overwritten": (
        Example(
            log=f"{FALLING}\nResuming from lora-out/checkpoint-800\nCheckpoint "
            f"lora-out/checkpoint-800/adapter_model.bin not found\n"
            f"{_lines(2.4, 2.1, 6)}\n",
            config="lora_r: 8\nlora_alpha: 16\n",
        ),
        Example(
            log=f"trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.0622\n{FALLING}",
            config="lora_r: 8\nlora_alpha: 16\n",
        ),
    ),
}
