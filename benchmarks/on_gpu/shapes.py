"""The models that are trained, each with its batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

SEED, BATCHES = 20_240_229, 4
LEARNING_RATE = 1e-7
"""So small that no way of training meets another model than the others; the arithmetic is the same."""
T5 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A model and its batch."""

    name: str
    what: str
    kind: str
    """t5, llama, or given."""
    device: str = "cuda"
    config: dict[str, Any]
    rows: int
    source: int
    target: int = 0
    weights: torch.dtype = torch.float32
    turn: int
    """Steps that each way takes in a repeat."""
    at_a_time: int = 0
    """Steps before the next one's turn: of a repeat, as many as there are when 0."""
    seconds: float
    """For all repeats together."""
    ways: tuple[str, ...] | None = None
    """Those that are measured; None for all but the compiled ones."""
    without: tuple[str, ...] = ()
    """Those that are left out. Each graph holds a step's memory of its own."""
    compiled: bool = False
    added: bool = False
    """Whether the device's work is looked at kernel by kernel as well."""
    promises: tuple[tuple[str, str, float], ...] = ()
    """A way, what it is compared with, and the most that was promised."""

    def __str__(self) -> str:
        if self.kind == "given":
            return self.what
        target = f" and {self.target} target" if self.target else ""
        autocast = ", bf16 autocast" if self.device == "cuda" else ""
        precision = "bf16 weights" if self.weights is torch.bfloat16 else f"fp32 weights{autocast}"
        return f"{self.what}, {self.rows} x {self.source}{target} tokens, {precision}"


LLAMA = {"vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
         "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True}  # fmt: skip
STATISTICS = "guard, every statistic every step"
SNAPSHOT = "guard + a snapshot in 50 steps"
GRAPH, GRAPH_STATISTICS = "guard as a CUDA graph", "guard as a graph, every statistic"
GPU_BOUND = ((STATISTICS, "clip", 1.00), (STATISTICS, "no clip", 1.01), ("guard", "no clip", 1.01))
SHAPES = (
    Shape(
        name="cpu", what="a small T5", kind="t5", device="cpu", rows=8, source=48, target=48, seconds=200,
        turn=50, at_a_time=1,  # one sample of the guard's in a turn
        config=T5 | {"vocab_size": 384, "d_model": 128, "d_kv": 32, "d_ff": 320, "num_layers": 2,
                     "num_decoder_layers": 2, "num_heads": 2},
        ways=("clip", "clip again", "no clip", "guard", STATISTICS, "host check of the norm",
              "NaN loop over parameters", "set_detect_anomaly", "DebugUnderflowOverflow"),
        promises=(("guard", "clip", 1.05),),
    ),
    Shape(
        name="launch-bound", what="mt5-small's shape", kind="t5", rows=2, source=64, target=64, turn=10, seconds=90,
        config=T5 | {"vocab_size": 250_112, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8,
                     "num_decoder_layers": 8, "num_heads": 6},
        promises=((STATISTICS, "clip", 1.00),),
    ),
    Shape(
        name="gpu-bound", what="byt5-small's shape", kind="t5", rows=16, source=1024, target=256, turn=4, seconds=90,
        config=T5 | {"vocab_size": 384, "d_model": 1472, "d_kv": 64, "d_ff": 3584, "num_layers": 12,
                     "num_decoder_layers": 4, "num_heads": 6},
        promises=(*GPU_BOUND, (SNAPSHOT, "guard", 1.01)), without=(GRAPH_STATISTICS,), added=True,
    ),
    Shape(
        name="llama", what="a LLaMA of 1.2 billion", kind="llama", rows=8, source=2048, turn=3, seconds=90,
        weights=torch.bfloat16,
        config=LLAMA,
        promises=GPU_BOUND, without=(GRAPH, GRAPH_STATISTICS, SNAPSHOT), added=True,
    ),
    Shape(
        name="llama-graph", what="a LLaMA of 1.2 billion", kind="llama", rows=4, source=2048, turn=5, seconds=25,
        weights=torch.bfloat16, config=LLAMA,
        ways=("clip", "clip again", "no clip", "guard", GRAPH, GRAPH_STATISTICS),
    ),
    Shape(
        name="host", what="189 small tensors whose gradients are given", kind="given", rows=1, source=1, turn=40,
        seconds=20, config={"vocab_size": 100, "tensors": 189, "width": 64},
        ways=("clip", "clip again", "no clip", "guard", STATISTICS, "guard, torch's own reading",
              "host check of the norm", "NaN loop over parameters"),
        promises=((STATISTICS, "clip", 1.00),),
    ),
    Shape(
        name="compiled", what="a LLaMA of 4 layers under torch.compile", kind="llama", rows=8, source=512, turn=10,
        seconds=20, compiled=True,
        config={"vocab_size": 32_000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4,
                "num_attention_heads": 16, "num_key_value_heads": 16, "tie_word_embeddings": True},
        ways=("clip", "clip again", "no clip", "guard", STATISTICS, "guard, compiled optimizer"),
    ),
)  # fmt: skip


class Workload:
    """A model of some shape on the GPU, with its batches and an optimizer."""

    def __init__(self, shape: Shape, *, small: bool = False) -> None:
        torch.manual_seed(SEED)
        on_gpu = shape.device == "cuda" and torch.cuda.is_available()
        self.device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
        self.half = shape.weights is torch.bfloat16
        config = shape.config | (SMALL[shape.kind] if small else {})
        rows, source, target = (2, 8, 8) if small else (shape.rows, shape.source, shape.target)
        with torch.device(self.device):
            self.model = MODELS[shape.kind](config).to(shape.weights).train()
        self.parameters = list(self.model.parameters())
        self.optimizer = self.new_optimizer(LEARNING_RATE)
        words = int(config["vocab_size"])
        self.batches = [self._batch(shape.kind, words, rows, source, target) for _ in range(BATCHES)]
        self._turn = 0
        self.forward: Callable[..., Any] = torch.compile(self.model) if shape.compiled else self.model

    def new_optimizer(self, rate: float | Tensor) -> torch.optim.AdamW:
        """A fused AdamW over the model."""
        return torch.optim.AdamW(self.parameters, lr=rate, fused=True)

    def next_batch(self) -> dict[str, Tensor]:
        """The batches take turns."""
        self._turn += 1
        return self.batches[self._turn % BATCHES]

    def loss_of(self, batch: dict[str, Tensor]) -> Tensor:
        """The forward pass."""
        plain = self.half or self.device.type == "cpu"
        with nullcontext() if plain else torch.autocast("cuda", torch.bfloat16):
            loss: Tensor = self.forward(**batch, use_cache=False).loss
        return loss

    def loss(self) -> Tensor:
        """The forward pass on the next batch."""
        return self.loss_of(self.next_batch())

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _batch(self, kind: str, words: int, rows: int, source: int, target: int) -> dict[str, Tensor]:
        read = torch.randint(3, words, (rows, source), device=self.device)
        wanted = read if kind == "llama" else torch.randint(3, words, (rows, target), device=self.device)
        return {"input_ids": read, "labels": wanted}


def _t5(config: dict[str, Any]) -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(**config))


def _llama(config: dict[str, Any]) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**config))


class Given(nn.Module):
    """No model at all: parameters whose gradients are there without a forward or backward pass.

    What is left of a step is what comes after backward, where all ways differ, and the host takes longer over it than
    the device.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        shape = (config["width"], config["width"])
        self.weights = nn.ParameterList([torch.randn(shape) for _ in range(config["tensors"])])
        self._gradients = [1e-3 * torch.randn(shape) for _ in self.weights]
        self._loss = torch.ones((), requires_grad=True)
        self._turn = 0

    def forward(self, **_: object) -> Outcome:
        """Put the gradients there."""
        for weight, gradient in zip(self.weights, self._gradients, strict=True):
            weight.grad = gradient
        # A loss that never changed would be remarked upon.
        self._turn += 1
        return Outcome(self._loss * (2.0 + 0.01 * (self._turn % 7)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What models return."""

    loss: Tensor


MODELS: dict[str, Callable[[dict[str, Any]], nn.Module]] = {"t5": _t5, "llama": _llama, "given": Given}
SMALL: dict[str, dict[str, Any]] = {
    "t5": {"vocab_size": 100, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_decoder_layers": 1,
           "num_heads": 2},
    "llama": {"vocab_size": 100, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 2},
    "given": {"tensors": 3, "width": 8},
}  # fmt: skip
"""For a rehearsal on a machine without a GPU."""
