"""Cost of a guarded step, against the usual ways to look for trouble. Prints a table per model shape.

    python benchmarks/guard_overhead.py                         # what fits the machine: `cpu`, or the two GPU presets
    python benchmarks/guard_overhead.py --preset launch-bound --repeats 5 --skip-slow --json overhead.json

All variants train the same model with one fused optimizer on the same batches, in turn: within a repeat each runs
`--steps` steps in short chunks, in rotating order, so that other load on the machine affects all alike. A ratio
compares a variant with the base of the same repeat; the table shows the median and quartiles of the ratios. `base
again` is the base measured twice: its distance from 1 is noise. A repeat has as many steps as the guard's sampling
interval, so that each pays for exactly one sample; a chunk ends only when the guard has processed all its steps.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from stayfinite import Guard, MissingExtra, Policy, __version__

SEED = 20_240_229
BATCHES = 8
WARMUP = 12
SLOW_STEPS = 4
LEARNING_RATE = 1e-6
"""So small that all variants see the same model; the optimizer's arithmetic is unchanged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """A model shape with its batch and promise."""

    name: str
    what: str
    device: str
    config: dict[str, Any]
    rows: int
    source: int
    target: int
    chunk: int
    """Steps per turn."""
    promise: float
    """Maximum step time of the guard relative to the base."""

    def __str__(self) -> str:
        precision = "bf16 autocast" if self.device == "cuda" else "fp32"
        return f"{self.what}, {self.rows} x {self.source} source and {self.target} target tokens, {precision}"


GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0}
PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="cpu", what="a small T5", device="cpu", promise=1.05, chunk=1,
            rows=8, source=48, target=48,
            config=GATED | {"vocab_size": 384, "d_model": 128, "d_kv": 32, "d_ff": 320, "num_layers": 2,
                            "num_decoder_layers": 2, "num_heads": 2},
        ),
        Preset(
            name="gpu-bound", what="byt5-small's shape", device="cuda", promise=1.01, chunk=10,
            rows=16, source=1024, target=256,
            config=GATED | {"vocab_size": 384, "d_model": 1472, "d_kv": 64, "d_ff": 3584, "num_layers": 12,
                            "num_decoder_layers": 4, "num_heads": 6},
        ),
        Preset(
            name="launch-bound", what="mt5-small's shape", device="cuda", promise=1.05, chunk=25,
            rows=2, source=64, target=64,
            config=GATED | {"vocab_size": 250_112, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8,
                            "num_decoder_layers": 8, "num_heads": 6},
        ),
    )
}  # fmt: skip


def build_model(config: dict[str, Any]) -> nn.Module:
    """A T5 of this shape with random weights; without transformers, torch's encoder-decoder of similar size."""
    torch.manual_seed(SEED)
    try:
        from transformers import T5Config, T5ForConditionalGeneration
    except ImportError:
        return StandIn(config)
    return T5ForConditionalGeneration(T5Config(**config))


@dataclass(frozen=True, slots=True)
class Output:
    """Model output, as in transformers."""

    loss: Tensor


class StandIn(nn.Module):
    """``torch.nn.Transformer`` in place of a T5 with the same widths and depths."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width = config["d_model"]
        self.embedding = nn.Embedding(config["vocab_size"], width)
        self.body = nn.Transformer(
            d_model=width, nhead=width // config["d_kv"], dim_feedforward=config["d_ff"],
            num_encoder_layers=config["num_layers"], num_decoder_layers=config["num_decoder_layers"],
            activation="gelu", batch_first=True,
        )  # fmt: skip
        self.head = nn.Linear(width, config["vocab_size"], bias=False)

    def forward(self, input_ids: Tensor, labels: Tensor, **_: object) -> Output:
        """The loss of predicting ``labels`` [B, T] from ``input_ids`` [B, S]."""
        shifted = F.pad(labels[:, :-1], (1, 0))
        mask = self.body.generate_square_subsequent_mask(labels.shape[1], device=labels.device)
        hidden = self.body(self.embedding(input_ids), self.embedding(shifted), tgt_mask=mask, tgt_is_causal=True)
        return Output(F.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten()))


class Workload:
    """The model, optimizer and batches shared by all variants."""

    def __init__(self, preset: Preset) -> None:
        self.device = torch.device(preset.device)
        self.model = build_model(preset.config).to(self.device).train()
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=LEARNING_RATE, fused=True)
        vocabulary = preset.config["vocab_size"]
        self._batches = [
            {
                "input_ids": torch.randint(3, vocabulary, (preset.rows, preset.source), device=self.device),
                "labels": torch.randint(3, vocabulary, (preset.rows, preset.target), device=self.device),
            }
            for _ in range(BATCHES)
        ]
        self._turn = 0
        self.open = ExitStack()
        """Closed after everything is measured."""

    def scheduler(self) -> LambdaLR:
        """A separate schedule over the shared optimizer: warm-up, then constant."""
        return LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 10))

    def loss(self) -> Tensor:
        """The forward pass on the next batch."""
        batch = self._batches[self._turn % BATCHES]
        self._turn += 1
        with torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else nullcontext():
            loss: Tensor = self.model(**batch, use_cache=False).loss
        return loss

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way of taking a training step."""

    step: Callable[[], None]
    settle: Callable[[], None] = lambda: None
    """Deferred work to pay for at the end of a chunk."""
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """Active for the steps of this variant only."""


def plain(work: Workload, around: Callable[[], AbstractContextManager[object]] = nullcontext) -> Variant:
    """The plain loop."""
    scheduler = work.scheduler()

    def step() -> None:
        work.loss().backward()
        nn.utils.clip_grad_norm_(work.parameters, 1.0)
        work.optimizer.step()
        scheduler.step()
        work.optimizer.zero_grad(set_to_none=True)

    return Variant(step=step, around=around)


def host_check(work: Workload) -> Variant:
    """The plain loop, checking the norm on the host."""
    scheduler = work.scheduler()

    def step() -> None:
        work.loss().backward()
        norm = nn.utils.clip_grad_norm_(work.parameters, 1.0)
        if torch.isfinite(norm):
            work.optimizer.step()
            scheduler.step()
        work.optimizer.zero_grad(set_to_none=True)

    return Variant(step=step)


def nan_loop(work: Workload) -> Variant:
    """The plain loop, checking every gradient on the host."""
    scheduler = work.scheduler()

    def step() -> None:
        work.loss().backward()
        if not any(torch.isnan(p.grad).any() for p in work.parameters if p.grad is not None):
            nn.utils.clip_grad_norm_(work.parameters, 1.0)
            work.optimizer.step()
            scheduler.step()
        work.optimizer.zero_grad(set_to_none=True)

    return Variant(step=step)


def guarded(work: Workload, policy: Policy, run_dir: Path, remarks: Remarks) -> Variant:
    """The loop with a guard and its run directory."""
    guard = work.open.enter_context(
        Guard(work.model, work.optimizer, work.scheduler(), policy=policy, run_dir=run_dir, console=remarks)
    )
    return Variant(step=lambda: guard.step(work.loss()), settle=guard.flush)


@contextmanager
def underflow_overflow(model: nn.Module) -> Iterator[None]:
    """transformers' DebugUnderflowOverflow, removed on exit."""
    from transformers.debug_utils import DebugUnderflowOverflow

    debug = DebugUnderflowOverflow(model)
    try:
        yield
    finally:
        for module in model.modules():
            for key, hook in list(module._forward_hooks.items()):
                if getattr(hook, "__self__", None) is debug:
                    del module._forward_hooks[key]


@dataclass
class Remarks:
    """A console that records what the guard prints; nothing in a healthy run."""

    lines: list[str] = field(default_factory=list)

    def print(self, line: object) -> None:
        """Record a line."""
        self.lines.append(str(line))


BASE = "base"
FAST = (BASE, "base-again", "guard", "guard-every-step", "host-check", "nan-loop")
SLOW = ("anomaly", "debug")
TITLES = {
    BASE: "base: bare loop with clip_grad_norm_",
    "base-again": "base again (noise)",
    "guard": "guard",
    "guard-every-step": "guard, sampling every step",
    "host-check": "host check of the norm",
    "nan-loop": "NaN loop over parameters",
    "anomaly": "set_detect_anomaly",
    "debug": "DebugUnderflowOverflow",
}


def build_variants(names: Sequence[str], work: Workload, directory: Path, remarks: Remarks) -> dict[str, Variant]:
    """The named variants over one workload."""
    makers: dict[str, Callable[[], Variant]] = {
        BASE: lambda: plain(work),
        "base-again": lambda: plain(work),
        "guard": lambda: guarded(work, Policy(snapshots=False), directory / "guard", remarks),
        "guard-every-step": lambda: guarded(
            work, Policy(sample_every=1, snapshots=False), directory / "every-step", remarks
        ),
        "host-check": lambda: host_check(work),
        "nan-loop": lambda: nan_loop(work),
        "anomaly": lambda: plain(work, lambda: torch.autograd.set_detect_anomaly(True)),
        "debug": lambda: plain(work, lambda: underflow_overflow(work.model)),
    }
    return {name: makers[name]() for name in names}


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """Measurements for one preset."""

    preset: Preset
    model: str
    """The model actually trained."""
    parameters: int
    steps: int
    """Per fast variant and repeat."""
    milliseconds: dict[str, list[float]]
    """Time per step of each variant in each repeat."""
    remarks: list[str]
    """Lines printed by the guards; any line means that the steps were not all healthy."""

    def ratios(self, name: str) -> list[float]:
        """A variant's time over the base's, per repeat."""
        return [own / base for own, base in zip(self.milliseconds[name], self.milliseconds[BASE], strict=True)]


def measure(preset: Preset, names: Sequence[str], repeats: int, steps: int) -> Result:
    """Time the variants in turn."""
    remarks = Remarks()
    with tempfile.TemporaryDirectory(prefix="guard_overhead_") as directory:
        work = Workload(preset)
        variants = build_variants(names, work, Path(directory), remarks)
        for name, variant in variants.items():
            progress(f"{preset.name}: warming up {name}")
            timed(work, variant, SLOW_STEPS if name in SLOW else WARMUP)
        fast = [name for name in names if name not in SLOW]
        times: dict[str, list[float]] = defaultdict(list)
        turn = 0
        for repeat in range(repeats):
            spent: dict[str, float] = defaultdict(float)
            for start in range(0, steps, preset.chunk):
                progress(f"{preset.name}: repeat {repeat + 1} of {repeats}, step {start} of {steps}")
                chunk = min(preset.chunk, steps - start)
                for place in range(len(fast)):
                    name = fast[(turn + place) % len(fast)]
                    spent[name] += timed(work, variants[name], chunk) / steps
                turn += 1
            for name in names:
                if name in SLOW:
                    progress(f"{preset.name}: repeat {repeat + 1} of {repeats}, {name}")
                    spent[name] = timed(work, variants[name], SLOW_STEPS) / SLOW_STEPS
            for name, seconds in spent.items():
                times[name].append(1000 * seconds)
            progress("")
            so_far = ", ".join(f"{name} {spent[name] / spent[BASE]:.3f}x" for name in names)
            print(f"{preset.name}: repeat {repeat + 1} of {repeats}: {so_far}", file=sys.stderr, flush=True)
        result = Result(
            preset=preset,
            model=type(work.model).__name__,
            steps=steps,
            parameters=sum(p.numel() for p in work.parameters),
            milliseconds={name: times[name] for name in names},
            remarks=list(remarks.lines),
        )
        work.open.close()
    progress("")
    return result


def timed(work: Workload, variant: Variant, steps: int) -> float:
    """Seconds for this many steps, until device and host are idle."""
    with variant.around():
        work.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            variant.step()
        variant.settle()
        work.synchronize()
        return time.perf_counter() - start


def table(result: Result) -> str:
    """The table as text."""
    lines = [f"{'variant':<38}{'ms/step':>9}   ratio to base: median [quartiles]"]
    for name, times in result.milliseconds.items():
        ratios = result.ratios(name)
        low, high = quartiles(ratios)
        spread = f"{statistics.median(ratios):.3f}x [{low:.3f}, {high:.3f}]"
        lines.append(f"{TITLES[name]:<38}{statistics.median(times):>9.2f}   {spread}")
    return "\n".join(lines)


def verdict(result: Result) -> str:
    """The promise against the measurement."""
    preset = result.preset
    if "guard" not in result.milliseconds:
        return f"----  {preset.name}: the guard was not measured"
    ratio = statistics.median(result.ratios("guard"))
    words = f"{preset.name}: guard {ratio:.3f}x of the base, promised at most {preset.promise:.2f}x"
    if result.remarks:
        return f"?     {words}; not a healthy run, the guard spoke {len(result.remarks)} times: {result.remarks[0]}"
    if result.model == StandIn.__name__:
        return f"?     {words} for {preset.what}, but nn.Transformer stood in for it"
    if result.steps % Policy().sample_every:
        return f"?     {words}, but {result.steps} steps do not hold the due share of sampled ones"
    return f"{'PASS ' if ratio <= preset.promise else 'SHORT'} {words}"


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile; of a single value, that value."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def circumstances() -> dict[str, str]:
    """Environment of the measurement."""
    versions = {"python": platform.python_version(), "stayfinite": __version__, "torch": torch.__version__}
    try:
        import transformers

        versions["transformers"] = transformers.__version__
    except ImportError:
        versions["transformers"] = "none"
    path = os.environ.get("PYTHONPATH")
    python = Path(sys.executable).name
    return {
        "command": f"{f'PYTHONPATH={shlex.quote(path)} ' if path else ''}{shlex.join([python, *sys.argv])}",
        "cpu": f"{processor()}, {torch.get_num_threads()} threads",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def progress(text: str) -> None:
    """A line that overwrites itself, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--preset", choices=("auto", *PRESETS), default="auto", help="model shape (default: what fits)")
    parser.add_argument("--repeats", type=positive, default=7, help="times that everything is measured (default: 7)")
    parser.add_argument(
        "--steps", type=positive, default=Policy().sample_every,
        help="steps of each variant in a repeat (default: %(default)s, which holds one sampled step of the guard)",
    )  # fmt: skip
    parser.add_argument(
        "--variants", nargs="+", choices=(*FAST, *SLOW), metavar="VARIANT",
        help=f"only these, and the base: {', '.join((*FAST, *SLOW))}",
    )  # fmt: skip
    parser.add_argument("--skip-slow", action="store_true", help=f"leave out {' and '.join(SLOW)}")
    parser.add_argument("--threads", type=positive, help="threads on the CPU (default: torch's own choice)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers there")
    return parser.parse_args()


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, not {text!r}")
    return value


def chosen_presets(choice: str) -> list[Preset]:
    """The chosen presets, or those that fit the machine."""
    if choice == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return [preset for preset in PRESETS.values() if preset.device == device]
    if PRESETS[choice].device == "cuda" and not torch.cuda.is_available():
        print(f"--preset {choice} needs a CUDA device, and torch sees none; --preset cpu runs here", file=sys.stderr)
        sys.exit(2)
    return [PRESETS[choice]]


def chosen_variants(only: Sequence[str] | None, *, skip_slow: bool) -> list[str]:
    """The chosen variants in table order, always with the base."""
    names = [name for name in (*FAST, *SLOW) if only is None or name in only or name == BASE]
    if skip_slow:
        names = [name for name in names if name not in SLOW]
    try:
        import transformers  # noqa: F401
    except ImportError:
        print(
            MissingExtra(
                "transformers is not installed: DebugUnderflowOverflow is left out, nn.Transformer stands in for T5",
                fix="pip install 'stayfinite[hf]'",
            )
        )
        names = [name for name in names if name != "debug"]
    return names


def main() -> None:
    """Measure, print, and optionally write the raw numbers."""
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    presets = chosen_presets(options.preset)
    names = chosen_variants(options.variants, skip_slow=options.skip_slow)
    facts = circumstances()
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    results = []
    for preset in presets:
        result = measure(preset, names, options.repeats, options.steps)
        results.append(result)
        print(f"\n{preset.name}: {preset}, fused AdamW")
        print(f"trained: {result.model}, {result.parameters / 1e6:.1f} M parameters")
        print(f"{options.repeats} repeats of {options.steps} steps ({SLOW_STEPS} of the slow variants)\n")
        print(table(result), flush=True)
        if preset.device == "cuda":
            torch.cuda.empty_cache()
    print(*("", *map(verdict, results)), sep="\n")
    if options.json:
        options.json.write_text(json.dumps({**facts, "results": [asdict(result) for result in results]}, indent=1))


if __name__ == "__main__":
    main()
