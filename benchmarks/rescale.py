r"""Whether a network that `stayfinite rescale` has rescaled trains in plain fp16 autocast as the original does in fp32.

    python benchmarks/rescale.py --steps 300                                    # small shapes, on the CPU
    python benchmarks/rescale.py --device cuda --shape byt5-small --steps 2000 --lr 3e-4 --kinds "t5 gated" "t5 relu" \
        --trials "original fp32" "nudged fp32" "original fp16" "rescaled fp16" --jobs 8 --write rescale_h200.json

Each model has random weights, with feed-forwards multiplied until what they give out reaches five times fp16's range.
The task is this repository's own source code, as bytes: each row asks for the bytes that follow it. Trainings from the
same weights over the same batches, AdamW at the same rate: the original in fp32 and in fp16, the rescaled one in both.
`nudged` is the original in fp32 from weights 2**-11 apart: how far its loss is from the original's is the noise. A
GradScaler starts at 65,536 and may skip steps while it looks for its scale; a forward pass that is not finite is an
overflow, which no scale helps; after 60 in a row a training ends.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stayfinite.precision.surgery import rescale
from stayfinite.precision.surgery.measuring import measure
from stayfinite.precision.surgery.rescaling import SHARE
from stayfinite.precision.surgery.trials import train_a_little

FAR = 5 * 65504.0
BYTES = 259
"""ByT5's vocabulary without its sentinels: three special tokens, then the bytes."""


def build(kind: str, shape: str) -> Any:
    """A fresh model over bytes."""
    hf: Any = import_module("transformers")
    torch.manual_seed(0)
    small = shape == "small"
    t5: dict[str, Any] = {"vocab_size": 384, "decoder_start_token_id": 0, "dropout_rate": 0.0}
    if small:
        t5 |= {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2}
    else:
        t5 |= {"d_model": 1472, "d_kv": 64, "d_ff": 3584, "num_heads": 6, "num_layers": 12, "num_decoder_layers": 4}
    width, layers = (64, 2) if small else (1024, 12)
    llama: dict[str, Any] = {"vocab_size": 384, "hidden_size": width, "intermediate_size": 2 * width}
    llama |= {"num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": width // 4}
    if kind == "t5 gated":
        return hf.T5ForConditionalGeneration(hf.T5Config(**t5, feed_forward_proj="gated-gelu"))
    if kind == "t5 relu":
        return hf.T5ForConditionalGeneration(hf.T5Config(**t5, feed_forward_proj="relu"))
    if kind == "mt5":
        return hf.MT5ForConditionalGeneration(hf.MT5Config(**t5, feed_forward_proj="gated-gelu"))
    if kind == "llama":
        return hf.LlamaForCausalLM(hf.LlamaConfig(**llama))
    return hf.GemmaForCausalLM(hf.GemmaConfig(**llama))


KINDS = ("t5 gated", "t5 relu", "mt5", "llama", "gemma")
TRIALS = ("original fp32", "nudged fp32", "original fp16", "rescaled fp32", "rescaled fp16")


def code_batches(model: Any, *, count: int, rows: int, length: int) -> list[dict[str, Tensor]]:
    """Rows of this repository's source code."""
    root = Path(__file__).resolve().parent.parent / "src"
    text = b"\n".join(path.read_bytes() for path in sorted(root.rglob("*.py"))[:200])
    ids = torch.tensor(list(text), dtype=torch.long) + (BYTES - 256)
    starts = torch.randint(0, len(ids) - 2 * length, (count, rows), generator=torch.Generator().manual_seed(0))
    device = next(model.parameters()).device
    batches = []
    for row in starts:
        source = torch.stack([ids[start : start + length] for start in row.tolist()]).to(device)
        follows = torch.stack([ids[start + length : start + 2 * length] for start in row.tolist()]).to(device)
        labels = follows if model.config.is_encoder_decoder else source
        batches.append({"input_ids": source, "labels": labels})
    return batches


@torch.no_grad()
def plant(model: Any, batches: list[dict[str, Tensor]]) -> None:
    """Feed-forwards that give out five times fp16's range."""
    ends = ("wo", "down_proj")
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in ends and isinstance(module, nn.Linear):
            sizes = measure(model, batches[:2], lambda batch: model(**batch))
            module.weight.mul_(FAR / sizes[f"{name}:out"].largest)


def one(kind: str, trial: str, options: argparse.Namespace) -> dict[str, Any]:
    """One training. Each builds the model anew, so that several can run at once."""
    model = build(kind, options.shape).to(options.device)
    batches = code_batches(model, count=options.batches, rows=options.rows, length=options.length)
    plant(model, batches)
    network, _, name = trial.partition(" ")
    precision: Literal["fp16", "fp32"] = "fp16" if name == "fp16" else "fp32"
    record: dict[str, Any] = {"kind": kind, "parameters": sum(p.numel() for p in model.parameters())}
    exponents: Mapping[str, int] = {}
    if network == "rescaled":
        result = rescale(model, batches[:4], share=options.share)
        exponents = result.parameters
        record |= {name: getattr(result, name) for name in ("verdict", "largest_before", "largest_after")}
        record |= {"logits_difference": result.logits_difference, "factors": len(result.changes)}
        print(
            f"{kind:9} " + ", ".join(f"{name} {value}" for name, value in record.items() if name != "kind"), flush=True
        )
    if network == "nudged":
        nudge(model)
    # The original overflows at every step: a few show it.
    steps = min(options.steps, 50) if trial == "original fp16" else options.steps
    start = time.perf_counter()
    done = train_a_little(
        model, batches, steps=steps, precision=precision, exponents=exponents, network=network, lr=options.lr
    )
    end = "none" if done.last_loss is None else f"{done.last_loss:.4f}"
    first = "" if done.overflow_step is None else f" (first at step {done.overflow_step} in {done.overflow_module})"
    print(
        f"{kind:9} {trial}: {done.steps} steps, {done.overflows} overflows{first}, {done.skipped} skipped, loss {end}, "
        f"scale {done.scale}, largest {done.largest:.4g}, {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    return record | {"trial": asdict(done)}


@torch.no_grad()
def nudge(model: nn.Module) -> None:
    """Weights 2**-11 apart, as far as fp16 rounds them: fp32 from here shows how much a loss may differ by chance."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator).to(parameter.device)
        parameter.mul_(1 + 2.0**-11 * noise)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", choices=("small", "byt5-small"), default="small")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--trials", nargs="+", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batches", type=int, default=64)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--share", type=float, default=SHARE, help="as of stayfinite rescale")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at the same time, each in a process of its own")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    work = [(kind, trial, options) for kind in options.kinds for trial in options.trials]
    if options.jobs > 1:
        # Started afresh, because CUDA does not survive a fork.
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(one, *zip(*work, strict=True)))
    else:
        found = [one(*each) for each in work]
    if options.write:
        record = {"torch": torch.__version__, "device": options.device, "shape": options.shape, "steps": options.steps}
        record |= {"lr": options.lr, "trainings": found}
        options.write.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
