"""``plan_precision(model, optimizer, batch, forward=...)``: the fastest formats that stay within a stated error."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite.autopsy.steps import changes
from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.autopsy.steps.step import Step
from stayfinite.errors import UsageError
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.given import check_parts_of_training, forward_for
from stayfinite.inspection.probes.descent import at_planned_rate
from stayfinite.inspection.probes.ranges import in_full
from stayfinite.precision import speed
from stayfinite.precision.candidates import Assignment, FullStep, Loss, full_step, run_candidate
from stayfinite.precision.formats import BF16, E4M3, FP16, FP32, TF32
from stayfinite.precision.modules_seen import ModulesSeen
from stayfinite.precision.plan import FP8, Budget, Option, PrecisionPlan
from stayfinite.precision.units import choosing, pattern_of
from stayfinite.rules.cards import Card, card_asked_for, card_named

MOST_BATCHES = 4
UNNAMED_CARD = "H100"
"""Card assumed when none is named and none is present."""


def card_of(gpu: str | None, model: nn.Module) -> tuple[Card, bool]:
    """The card to plan for, and whether to time on it."""
    on_cuda = next((p.is_cuda for p in model.parameters()), False)
    if gpu is not None and gpu.lower() != "this":
        return card_asked_for(gpu), False
    if on_cuda:
        name = torch.cuda.get_device_name()
        found = card_named(name)
        if found is None:
            raise UsageError(f"unknown GPU {name}", fix="name a similar one: --gpu H100")
        return found, gpu is not None
    if gpu is not None:
        raise UsageError("--gpu this: the model is not on a GPU", fix="name the GPU to plan for: --gpu H100")
    return card_asked_for(UNNAMED_CARD), False


def batches_of(batch: Any) -> list[Any]:
    """The batches to measure: the one passed, or the first few of a list or loader."""
    if isinstance(batch, Tensor | dict) or hasattr(batch, "items"):
        return [batch]
    several = isinstance(batch, list) and batch and not isinstance(batch[0], Tensor | int | float)
    if (not several and batch_items(batch)) or not isinstance(batch, Iterable):
        return [batch]
    found = list(islice(batch, MOST_BATCHES))
    if not found:
        raise UsageError("no batch found", fix="pass a batch, a list of batches, or a loader")
    return found


def formats_of(card: Card, formats: Sequence[str] | None) -> tuple[str, ...]:
    """The formats to consider: the ones passed, else all that the card supports."""
    known = {"fp32": FP32, "tf32": TF32, "bf16": BF16, "fp16": FP16, "fp8": E4M3}
    odd = [kind for kind in formats or () if kind not in known]
    if odd:
        raise UsageError(f"unknown format {odd[0]!r}", fix=f"of {', '.join(known)}")
    if formats is not None:
        return tuple(formats)
    return tuple(kind for kind, format in known.items() if format.on(card))


DIVISIBLE = 16
"""Both sides of a weight must be multiples of this for fp8."""
OUTSTANDING = 2.0
"""A layer with an error above this multiple of its group's median is considered alone."""
ROUNDS = 6
"""Rounds of moving overflowing modules to fp32 and trying again."""


def plan_precision(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    forward: Callable[[Any], Any] | None = None,
    *,
    budget: Budget | None = None,
    gpu: str | None = None,
    formats: Sequence[str] | None = None,
    steps: int = 4,
    compiled: bool = False,
) -> PrecisionPlan:
    """Choose the fastest format for each module within an error budget, measured on real steps.

    Examples:
        >>> plan = stayfinite.plan_precision(model, optimizer, batch, forward, gpu="A100", formats=["fp32", "bf16"])
        >>> plan.base
        'bf16'

    Restores weights, moments, generators, buffers, modes and gradients before it returns.

    Arguments:
        model: on its device, as it will be trained.
        optimizer: as it will be used; the steps taken with it are undone.
        batch: a real batch, or a loader or generator, of which the first four batches are used. A list of tensors is
            one batch.
        forward: ``forward(batch) -> loss``; default ``model(**batch).loss``. Its autocast is ignored.
        budget: how far the plan may deviate from fp32.
        gpu: the card to plan for: `T4`, `A100`, ...; `this` measures on the card in this machine. Default: the card in
            this machine, estimated; an H100 if there is none.
        formats: consider only these of fp32, tf32, bf16, fp16, fp8, and use fp8 wherever it fits the budget, even where
            it is not faster.
        steps: steps to train before measuring a second time; 0 measures the fresh model only.
        compiled: with ``gpu="this"``, time the compiled model. fp8 gains little without torch.compile.

    Raises:
        UsageError: an invalid model, optimizer or batch, or an unknown card or format.
    """
    check_parts_of_training(model, optimizer, None, steps)
    card, here = card_of(gpu, model)
    batches = batches_of(batch)
    run = forward_for(model, batches[0], forward)
    bench = Bench(model=model, optimizer=optimizer, batch=batches[0], forward=run)
    allowed = formats_of(card, formats)
    planner = _Planner(bench, batches, budget or Budget(), card, allowed, forced=formats is not None)
    with bench.kept.undone():
        planner.measure(steps)
        return planner.planned("compiled" if compiled else "eager") if here else planner.planned()


@dataclass
class _Search:
    """State of the search for one base format."""

    assignment: Assignment
    loss: Loss = field(default_factory=Loss)
    fits: bool = True


class _Planner:
    """Measures at several points; each may add modules that break."""

    def __init__(
        self, bench: Bench, batches: list[Any], budget: Budget, card: Card, allowed: tuple[str, ...], *, forced: bool
    ) -> None:
        self._bench, self._batches, self._budget = bench, batches, budget
        self._card, self._allowed, self._forced = card, allowed, forced
        self._rates: speed.Rates | None = speed.rates_of(card)
        self._choosing = choosing(bench.model)
        self._seen = ModulesSeen(allowed, budget.local)
        # fp32 is always included, as the fallback and the reference.
        kinds = ["fp32", *(kind for kind in ("tf32", "bf16", "fp16") if kind in allowed)]
        self._searches = {kind: _Search(Assignment(base=kind)) for kind in kinds}
        self._eight = _Search(Assignment(base="bf16")) if {"bf16", "fp8"} <= set(allowed) else None

    def measure(self, steps: int) -> None:
        """Measure the model as it is and again after some steps."""
        self._look()
        if steps and self._move(steps):
            self._look()

    def _move(self, steps: int) -> bool:
        """Take real steps; False if one gives a non-finite loss or weight."""
        bench = self._bench
        with at_planned_rate(bench):
            for number in range(steps):
                bench.model.zero_grad(set_to_none=True)
                step = self._step(self._batches[number % len(self._batches)])
                loss = step.execute(step.fresh_batch())
                if not math.isfinite(float(loss.detach())):
                    return False
                bench.optimizer.step()
        bench.model.zero_grad(set_to_none=True)
        return all(bool(p.isfinite().all()) for p in bench.model.parameters())

    def _step(self, batch: Any, *, casts: bool = False) -> Step:
        """A deterministic step in fp32; ``casts`` lets casts inside the step through."""
        model = self._bench.model
        step = self._bench.step.changed(changes.eager, partial(changes.no_dropout, model), batch=batch)
        if not casts:
            return in_full(step)
        return step.changed(
            changes.own_autocast_ignored,
            partial(changes.half_weights_as, model, torch.float32),
            batch=changes.in_full_precision(batch),
        )

    def _look(self) -> None:
        """Measure at this point and continue each search."""
        first: FullStep | None = None
        for batch in self._batches:
            found = full_step(self._step(batch), samples=first is None)
            self._seen.take_in(found)
            first = first or found
        assert first is not None
        self._seen.try_formats(first)
        for search in self._searches.values():
            self._search(search, first)
        if self._eight is not None and self._searches["bf16"].fits:
            self._search_eight(self._eight, self._searches["bf16"], first)

    def _run(self, assignment: Assignment, full: FullStep) -> Loss:
        return run_candidate(self._step(self._batches[0], casts=True), assignment, full, scale=self._seen.scale)

    def _within(self, loss: Loss) -> bool:
        return loss.loss <= self._budget.loss and loss.cosine >= self._budget.cosine

    def _search(self, search: _Search, full: FullStep) -> None:
        """Keep modules that break in this base in fp32 until the step is within the budget."""
        base = search.assignment.base
        if base == "fp32" or not search.fits:
            return
        kept = {**search.assignment.formats, **dict.fromkeys(self._seen.broken(base), "fp32")}
        loss = Loss()
        for _ in range(ROUNDS):
            loss = self._run(Assignment(base=base, formats=kept), full)
            new = [name for name in loss.overflowing if name not in kept]
            for name in new:
                self._seen.mark(name, base, "overflows")
                kept[name] = "fp32"
            if not new:
                break
        if not self._within(loss):
            ranked = [[name] for name in self._seen.ranked(base, kept)]
            kept, loss = self._bisected(kept, ranked, "fp32", base, full)
        search.assignment = Assignment(base=base, formats=kept)
        search.fits = self._within(loss) and not loss.overflowing
        search.loss = search.loss.merged(loss)

    def _search_eight(self, search: _Search, half: _Search, full: FullStep) -> None:
        """Use fp8 for the linear layers that tolerate it, on top of bf16."""
        kept = dict(half.assignment.formats)
        before = search.assignment.formats
        eight = {}
        for name in self._seen.errors:
            kind = next((kind for kind in FP8 if kind not in self._seen.breaks.get(name, {})), None)
            if name not in kept and kind is not None and self._takes_fp8(name):
                eight[name] = "fp8-rowwise" if before.get(name) == "fp8-rowwise" else kind
        loss = self._run(Assignment(base="bf16", formats={**kept, **eight}), full)
        if not self._within(loss):
            errors = {name: self._seen.errors[name][kind].worst for name, kind in eight.items()}
            # Layer errors add up as squares: drop first the layers with the most error per second saved.
            ranked = sorted(
                _alike(errors),
                key=lambda names: -sum(errors[n] ** 2 for n in names) / max(sum(map(self._gain, names)), 1e-12),
            )
            chosen, loss = self._bisected({**kept, **eight}, ranked, None, "bf16", full)
            for name in eight:
                if name not in chosen:
                    for kind in FP8:
                        self._seen.mark(name, kind, "the whole gradient")
            eight = {name: kind for name, kind in eight.items() if name in chosen}
        search.assignment = Assignment(base="bf16", formats={**kept, **eight})
        search.fits = self._within(loss)
        search.loss = search.loss.merged(loss)

    def _takes_fp8(self, name: str) -> bool:
        """Whether fp8 is supported for a layer and faster than bf16."""
        module = self._seen.modules[name]
        if not name or name in self._choosing or type(module) is not nn.Linear:
            return False
        if any(side % DIVISIBLE for side in module.weight.shape):
            return False
        return self._forced or self._rates is None or self._gain(name) > 0

    def _gain(self, name: str) -> float:
        """Seconds that fp8 saves on a layer against bf16; its multiply-adds if the card's rates are unknown."""
        work = self._seen.works[name]
        if self._rates is None:
            return work.products
        return speed.seconds_of(work, "bf16", "bf16", self._rates) - speed.seconds_of(work, "fp8", "bf16", self._rates)

    def _bisected(
        self, formats: dict[str, str], ranked: list[list[str]], other: str | None, base: str, full: FullStep
    ) -> tuple[dict[str, str], Loss]:
        """Change the format of as few ranked groups as possible so that the step is within the budget.

        Arguments:
            ranked: groups of layers that change together.
            other: their new format; None for the base.
        """

        def tried(count: int) -> tuple[dict[str, str], Loss]:
            moved = set(chain.from_iterable(ranked[:count]))
            found = {name: kind for name, kind in formats.items() if name not in moved}
            found |= dict.fromkeys(chain.from_iterable(ranked[:count]), other) if other else {}
            return found, self._run(Assignment(base=base, formats=found), full)

        low, high = 0, len(ranked)
        best = tried(high)
        if not self._within(best[1]):
            return best
        while high - low > 1:
            middle = (low + high) // 2 if low else min(high - 1, max(1, high // 8))
            found = tried(middle)
            if self._within(found[1]):
                high, best = middle, found
            else:
                low = middle
        for name in chain.from_iterable(ranked[:high]):
            self._seen.mark(name, base if other else "fp8", "the whole gradient")
        return best

    def planned(self, timed: Literal["eager", "compiled"] | None = None) -> PrecisionPlan:
        """The fastest plan within the budget. ``timed`` selects measured instead of estimated times."""
        notes = []
        searches = [*self._searches.values()]
        if self._eight is not None and self._searches["bf16"].fits and self._eight.assignment.named(*FP8):
            searches.append(self._eight)
        works = list(self._seen.works.values())
        options = [self._option(search, works, timed) for search in searches]
        fitting = [option for option in options if option.fits]
        if not fitting:
            raise UsageError(
                f"no format of {', '.join(self._allowed)} meets the budget: {self._budget}",
                fix="a wider budget, or fp32",
            )
        best = min(fitting, key=lambda each: (each.ms if each.ms is not None else 0.0, -_order(each)))
        if self._forced:
            best = max(fitting, key=_order)
        full = next((each.ms for each in options if each.base == "fp32"), None)
        if self._rates is None:
            notes.append(f"no speed estimate: rates of {self._card.with_article} are unknown")
        if best.name.endswith("fp8") and find_spec("torchao") is None:
            notes.append("fp8 needs torchao: pip install 'stayfinite[fp8]'")
        chosen = ("base", "formats", "loss", "cosine", "gradient", "measured", "saved_gib")
        return PrecisionPlan(
            **{name: getattr(best, name) for name in chosen},
            units={name: type(module).__name__ for name, module in self._seen.modules.items()},
            card=self._card.with_article,
            loss_scale=self._seen.scale if best.base == "fp16" else 1.0,
            budget=self._budget,
            speedup=full / best.ms if full and best.ms else None,
            rows=tuple(self._seen.rows()),
            options=tuple(options),
            notes=tuple(notes),
        )

    def _option(self, search: _Search, works: list[speed.Work], timed: str | None) -> Option:
        assignment = search.assignment
        seconds = None if self._rates is None else speed.estimated_seconds(works, assignment, self._rates)
        if timed and search.fits:
            step = self._bench.step
            with self._bench.kept.tidied():
                seconds = speed.measured_seconds(
                    self._bench.model,
                    lambda: step.forward(step.fresh_batch()).backward(),
                    assignment,
                    compiled=timed == "compiled",
                )
        return Option(
            base=assignment.base,
            formats=dict(assignment.formats),
            **{name: getattr(search.loss, name) for name in ("loss", "cosine", "gradient")},
            fits=search.fits,
            ms=None if seconds is None else seconds * 1000,
            saved_gib=speed.saved_bytes(works, assignment) / 2**30,
            measured=timed is not None and search.fits,
        )


def _alike(errors: Mapping[str, float]) -> list[list[str]]:
    """Group layers with the same name across blocks; a layer with an outlying error is its own group.

    Blocks with equal formats compile once and print as one pattern.
    """
    groups: dict[str, list[str]] = {}
    for name in errors:
        groups.setdefault(pattern_of(name), []).append(name)
    found = []
    for names in groups.values():
        usual = OUTSTANDING * statistics.median(errors[name] for name in names)
        found += [[name] for name in names if errors[name] > usual]
        found += [rest] if (rest := [name for name in names if errors[name] <= usual]) else []
    return found


def _order(option: Option) -> int:
    return ("fp32", "tf32", "fp16", "bf16", "bf16+fp8").index(option.name)
