"""``stayfinite rescale MODEL -o OUT``: an equivalent network whose activations fit fp16."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from stayfinite.cli.ending import command, given, tell


@dataclass(frozen=True, kw_only=True)
class Rescale:
    """Rescale a transformers model to fit fp16, and prove that it is the same function.

    Weights are multiplied by powers of two that cancel out: residual streams, feed-forwards, values, queries and keys.
    The result loads with plain transformers. Exit code 0: all fits, 1: something does not, 2: wrong use.
    """

    model: Annotated[str, tyro.conf.Positional]
    """Directory of a transformers model: T5, mT5, ByT5, LLaMA, Mistral, Qwen, Gemma, BART, mBART, Pegasus."""

    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Output directory for the rescaled model and its proof, rescale.json; without it nothing is written."""

    data: Path | None = None
    """Data to measure on: lines of text (source, tab, target) or JSON lines with input_ids; by default random tokens.
    """

    share: float = 0.25
    """Largest share of fp16's range that an activation may use."""

    tolerance: float = 1e-3
    """Largest difference of the fp32 logits, relative to the largest. Most rescalings are exact."""

    steps: int = 8
    """Training steps of the proof; 0 for none."""

    batches: int = 4
    """Batches to measure on."""

    rows: int = 4
    """Rows per batch."""

    length: int = 64
    """Tokens per row."""

    json: bool = False
    """Print the result as JSON and nothing else."""


@command(Rescale, also=(OSError,))
def run(settings: Rescale) -> int:
    """Run the command; 0 if everything fits, 1 if something does not, 2 on wrong use."""
    from stayfinite.precision.surgery.files import rescale_directory
    from stayfinite.report.precision import show_rescaled

    same = given(settings, "data", "share", "tolerance", "steps", "rows", "length")
    result = rescale_directory(settings.model, settings.out, count=settings.batches, **same)
    show = partial(show_rescaled, out=None if settings.out is None else str(settings.out))
    tell("rescale", result.to_json(), show, as_json=settings.json, allow_nan=False)
    return int(bool(result.obstacles))
