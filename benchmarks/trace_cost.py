"""Cost of the traced step of an autopsy, against a plain step and other ways to look for NaN.

    python benchmarks/trace_cost.py                  # CPU; promised: at most 2x
    python benchmarks/trace_cost.py --device cuda    # at most 10x

Three steps are traced: one with a bad loss (no backward pass needed), one with bad gradients only, and a finite one.
All variants alternate within a repeat, on the same model, weights, batch and random numbers; ratios are taken within a
repeat, and median and quartiles shown. A healthy step pays nothing.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.trace import trace_step
from stayfinite.state.rng import capture_rng

SIZES = {
    "cpu": {"T5, 14M": (256, 1024, 4, 8_000, 8, 64), "T5, 0.6M": (64, 128, 2, 1_000, 4, 16)},
    "cuda": {"T5, 60M": (512, 2048, 6, 32_000, 16, 256), "T5, 14M": (256, 1024, 4, 8_000, 8, 64)},
}
"""Width, inner width, layers, words, rows, length."""


def make_step(device: str, width: int, inner: int, layers: int, words: int, rows: int, length: int) -> Step:
    """A step of a T5 built from its config."""
    from transformers import T5Config, T5ForConditionalGeneration

    kind: Any = T5Config
    config = kind(
        d_model=width,
        d_ff=inner,
        num_layers=layers,
        num_heads=4,
        d_kv=width // 4,
        vocab_size=words,
        decoder_start_token_id=0,
    )
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(config)
    torch.nn.Module.to(model, device)
    tokens = torch.randint(1, words, (rows, length), device=device)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        loss: Tensor = model(**batch).loss
        return loss

    return Step(model=model, forward=forward, batch={"input_ids": tokens, "labels": tokens}, rng=capture_rng())


def bad_loss(step: Step) -> Step:
    """The step with the log of a negative number at its end."""
    return replace(step, forward=lambda batch: (step.forward(batch) - 100.0).log())


def bad_gradients(step: Step) -> Step:
    """The step with a finite loss and all-NaN gradients."""

    def forward(batch: dict[str, Tensor]) -> Tensor:
        loss = step.forward(batch)
        loss.register_hook(lambda gradient: gradient * math.nan)
        return loss

    return replace(step, forward=forward)


def variants(step: Step) -> dict[str, Callable[[], Any]]:
    """Ways of running the step."""
    from transformers.debug_utils import DebugUnderflowOverflow

    def anomaly() -> None:
        with torch.autograd.set_detect_anomaly(True):
            step.run()

    def frames() -> None:
        watch: Any = DebugUnderflowOverflow
        debug = watch(step.model, max_frames_to_save=1)
        try:
            step.run()
        finally:
            for module in step.model.modules():
                module._forward_hooks.clear()
        del debug

    return {
        "plain step": step.run,
        "traced, the loss is bad": lambda: trace_step(bad_loss(step)),
        "traced, gradients are bad": lambda: trace_step(bad_gradients(step)),
        "traced, all is finite": lambda: trace_step(step),
        "set_detect_anomaly": anomaly,
        "DebugUnderflowOverflow": frames,
    }


def seconds(run: Callable[[], Any], device: str) -> float:
    """Time of a run; on the CPU processor time, which other programs do not disturb."""
    if device == "cpu":
        start = time.process_time()
        run()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Print a table per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="on the CPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console(width=100)
    for name, size in SIZES[options.device].items():
        step = make_step(options.device, *size)
        ways = variants(step)
        for run in ways.values():
            run()
        times = [{way: seconds(run, options.device) for way, run in ways.items()} for _ in range(options.repeats)]
        table = Table(title=f"{name} parameters, {options.device}, torch {torch.__version__}")
        for heading in ("", "over a plain step", "quartiles"):
            table.add_column(heading)
        for way in list(ways)[1:]:
            ratios = [each[way] / each["plain step"] for each in times]
            low, middle, high = statistics.quantiles(ratios, n=4)
            table.add_row(way, f"{middle:.2f}x", f"{low:.2f} to {high:.2f}")
        console.print(table)


if __name__ == "__main__":
    main()
