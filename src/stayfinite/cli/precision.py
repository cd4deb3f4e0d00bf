"""``stayfinite precision``: plan the precision of each module for a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from stayfinite.cli.ending import command, tell


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Plan the precision of each module: the fastest formats within a stated error, measured on real steps. The
    training is left unchanged.

    Use the plan with `plan.apply(model)`, or `--precision precision.json` of a recipe. Exit code 0: plan made, 2: wrong
    use.
    """

    build: str
    """module:function that returns model, optimizer, batch and forward, as for `stayfinite check --build`."""

    gpu: str | None = None
    """The GPU to plan for: T4, V100, A100, H100, ...; `this` also measures times. By default this machine's GPU with
    estimated times, else an H100."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Save the plan to this file."""

    compile: bool = False
    """With `--gpu this`: time the compiled model (torch.compile). fp8 gains little without it."""

    formats: tuple[Literal["fp32", "tf32", "bf16", "fp16", "fp8"], ...] = ()
    """Use only these formats."""

    loss: float = 0.005
    """Largest relative error of the loss against fp32."""

    cosine: float = 0.9
    """Smallest cosine between the gradient and that of fp32."""

    steps: int = 4
    """Measure again after this many steps, which are undone; 0 for the initial model only."""

    updates: Literal["bf16", "fp16"] | None = None
    """Instead of a plan: measure what weights in this format lose per update, and what an fp32 copy, Kahan sums and
    stochastic rounding save."""

    all: bool = False
    """Show every module, not only those that break."""

    json: bool = False
    """Print the plan as JSON and nothing else."""


@command(Precision, also=(OSError,), tells_interrupt=True)
def run(settings: Precision) -> int:
    """Run the command; 0 with a plan, 2 on wrong use."""
    from stayfinite.inspection.preflight import parts_of_build
    from stayfinite.precision.plan import Budget
    from stayfinite.precision.planning import plan_precision
    from stayfinite.report.precision import show_plan

    parts = parts_of_build(settings.build)
    if settings.updates is not None:
        return _updates(settings, settings.updates, parts)
    plan = plan_precision(
        parts["model"],
        parts["optimizer"],
        parts["loader"] if parts["loader"] is not None else parts["batch"],
        parts["forward"],
        budget=Budget(loss=settings.loss, cosine=settings.cosine),
        gpu=settings.gpu,
        formats=settings.formats or None,
        steps=settings.steps,
        compiled=settings.compile,
    )
    if settings.output is not None:
        plan.save(settings.output)
    show = partial(show_plan, every=settings.all)
    tell("precision", plan.to_json(), show, as_json=settings.json, ensure_ascii=False)
    if settings.output is not None and not settings.json:
        print(f"Saved the plan to {settings.output}. Use it: PrecisionPlan.load({str(settings.output)!r}).apply(model)")
    return 0


def _updates(settings: Precision, format: str, parts: Mapping[str, Any]) -> int:
    from itertools import islice

    from stayfinite.precision.lost_updates import lost_updates
    from stayfinite.report.precision import show_updates

    steps = max(settings.steps, 4)
    batches = [parts["batch"]] if parts["loader"] is None else list(islice(parts["loader"], steps))
    found = lost_updates(
        parts["model"], parts["optimizer"], batches, parts["forward"], steps=steps, format=format
    ).to_json()
    tell("updates", found, show_updates, as_json=settings.json)
    return 0
