"""``plan_precision(model, optimizer, batch, forward=...)``: the fastest formats that stay within a stated error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite.autopsy.steps import changes
from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.autopsy.steps.step import Step
from stayfinite.errors import UsageError
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.loss_of import forward_for
from stayfinite.inspection.bench.wrong_use import check_parts_of_training
from stayfinite.inspection.probes.descent import at_planned_rate
from stayfinite.inspection.probes.formats import in_full
from stayfinite.precision.candidates import HEADROOM, Assignment, Loss, run_candidate
from stayfinite.precision.emulating import RECIPES
from stayfinite.precision.formats import BF16, E4M3, FP16, TF32
from stayfinite.precision.local_errors import LocalError, local_error
from stayfinite.precision.measuring import FullStep, full_step
from stayfinite.precision.plan import FP8, Budget, Option, PrecisionPlan, Row
from stayfinite.precision.rates import Rates, rates_of
from stayfinite.precision.speed import Work, estimated_seconds, measured_seconds, saved_bytes, seconds_of, work_of
from stayfinite.precision.units import multiplies
from stayfinite.rules.cards import Card, card_asked_for, card_named

MOST_BATCHES = 4
LARGEST_SCALE = 2.0**24
DIVISIBLE = 16
"""What both sides of a layer's weight are multiples of, where fp8 products take it."""
ROUNDS = 6
"""How often modules that overflow are kept, and what then overflows behind them looked for."""
UNNAMED_CARD = "H100"
"""Whose formats and rates are meant where no card is named and none is there."""


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
) -> PrecisionPlan:
    """What each module may compute in on a card, measured on real steps.

    Everything is as before when this returns: weights, moments, generators, buffers, modes, gradients.

    Arguments:
        model: on its device, as it will be trained.
        optimizer: as it will be used; some steps are taken with it, and undone.
        batch: a real one, or a loader or generator of some, of which the first four are used. A list of tensors is
            one batch.
        forward: ``forward(batch) -> loss``; by default ``model(**batch).loss``. Its own autocast is left out.
        budget: how far the plan may be from fp32.
        gpu: the card to plan for: `T4`, `A100`, ...; `this` measures on the one that is here. By default the one that
            is here, estimated; an H100 where there is none.
        formats: only these, of fp32, tf32, bf16, fp16, fp8, whatever is faster; fp8 is taken wherever it holds.
        steps: after how many steps it is measured again; 0 for the fresh model alone.

    Raises:
        UsageError: what was given is no training, or an unknown card or format.
    """
    check_parts_of_training(model, optimizer, None, steps)
    card, here = _card(gpu, model)
    batches = _batches(batch)
    run = forward_for(model, batches[0], forward)
    bench = Bench(model=model, optimizer=optimizer, batch=batches[0], forward=run)
    allowed = _allowed(card, formats)
    planner = _Planner(bench, batches, budget or Budget(), card, allowed, forced=formats is not None)
    with bench.kept.undone():
        planner.measure(steps)
        return planner.planned(measured_here=here)


def _card(gpu: str | None, model: nn.Module) -> tuple[Card, bool]:
    """The card, and whether times are to be measured on it."""
    on_cuda = next((p.is_cuda for p in model.parameters()), False)
    if gpu is not None and gpu.lower() != "this":
        return card_asked_for(gpu), False
    if on_cuda:
        name = torch.cuda.get_device_name()
        found = card_named(name)
        if found is None:
            raise UsageError(f"nothing is known of the card {name}", fix="name one that is like it: --gpu H100")
        return found, gpu is not None
    if gpu is not None:
        raise UsageError("--gpu this: the model is not on a card", fix="name a card to plan for: --gpu H100")
    return card_asked_for(UNNAMED_CARD), False


def _batches(batch: Any) -> list[Any]:
    """The batches in what was given: itself, or the first few of a list or a loader of them."""
    if isinstance(batch, Tensor | dict) or hasattr(batch, "items"):
        return [batch]
    several = isinstance(batch, list) and batch and not isinstance(batch[0], Tensor | int | float)
    if not several and batch_items(batch):
        return [batch]
    if not isinstance(batch, Iterable):
        return [batch]
    found = []
    for each in batch:
        found.append(each)
        if len(found) == MOST_BATCHES:
            break
    if not found:
        raise UsageError("there is no batch in what was given", fix="pass a batch, a list of some, or a loader")
    return found


def _allowed(card: Card, formats: Sequence[str] | None) -> tuple[str, ...]:
    known = ("fp32", "tf32", "bf16", "fp16", "fp8")
    odd = [kind for kind in formats or () if kind not in known]
    if odd:
        raise UsageError(f"unknown format {odd[0]!r}", fix=f"of {', '.join(known)}")
    if formats is not None:
        return tuple(formats)
    has = {"fp32": True, "tf32": TF32.on(card), "bf16": BF16.on(card), "fp16": FP16.on(card), "fp8": E4M3.on(card)}
    return tuple(kind for kind in known if has[kind])


@dataclass
class _Search:
    """How far the search has come for one base."""

    assignment: Assignment
    loss: Loss = field(default_factory=lambda: Loss(loss=0.0, cosine=1.0, gradient=0.0))
    fits: bool = True


class _Planner:
    """Measures at one point after another, and lets each add the modules that it shows to break."""

    def __init__(
        self, bench: Bench, batches: list[Any], budget: Budget, card: Card, allowed: tuple[str, ...], *, forced: bool
    ) -> None:
        self._bench, self._batches, self._budget = bench, batches, budget
        self._card, self._allowed, self._forced = card, allowed, forced
        self._rates: Rates | None = rates_of(card)
        self._largest: dict[str, dict[str, float]] = {}
        self._errors: dict[str, dict[str, LocalError]] = {}
        self._works: dict[str, Work] = {}
        self._modules: dict[str, nn.Module] = {}
        self._breaks: dict[str, dict[str, str]] = {}
        self._scale = LARGEST_SCALE
        halves = [kind for kind in ("bf16", "fp16") if kind in allowed]
        self._searches = {kind: _Search(Assignment(base=kind)) for kind in (*_fulls(allowed), *halves)}
        self._eight = _Search(Assignment(base="bf16")) if {"bf16", "fp8"} <= set(allowed) else None

    def measure(self, steps: int) -> None:
        """Look at the model as it is, and after some steps."""
        self._look()
        if steps and self._move(steps):
            self._look()

    def _move(self, steps: int) -> bool:
        """Take real steps; False where one fails or leaves the finite."""
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
        """A step in fp32, whose every run is the same; ``casts`` lets those through that are made within it."""
        model = self._bench.model
        step = self._bench.step.changed(changes.eager, partial(changes.no_dropout, model), batch=batch)
        if not casts:
            return in_full(step)
        return step.changed(
            partial(changes.autocast_as, None),
            partial(changes.half_weights_as, model, torch.float32),
            batch=changes.in_full_precision(batch),
        )

    def _look(self) -> None:
        """Measure at this point, and search on from where the last one has come to."""
        first: FullStep | None = None
        for batch in self._batches:
            found = full_step(self._step(batch), samples=first is None)
            self._take_in(found)
            first = first or found
        assert first is not None
        if not math.isfinite(first.loss):
            raise UsageError(f"the loss is {first.loss} in fp32", fix="`stayfinite check --build` says why")
        self._scale = min(self._scale, _loss_scale(self._largest, self._modules))
        self._try_locally(first)
        for search in self._searches.values():
            self._search(search, first)
        if self._eight is not None and self._searches["bf16"].fits:
            self._search_eight(self._eight, self._searches["bf16"], first)

    def _take_in(self, found: FullStep) -> None:
        for name, seen in found.seen.items():
            self._modules[name] = seen.module
            mine = self._largest.setdefault(name, {})
            for what, value in seen.largest.items():
                mine[what] = max(mine.get(what, 0.0), float(value))
            self._works[name] = work_of(name, seen.module, seen.rows, seen.moved)

    def _try_locally(self, first: FullStep) -> None:
        """Each module by itself in each format."""
        wanted = [kind for kind in RECIPES if kind != "fp32" and kind.partition("-")[0] in self._allowed]
        for name, seen in first.seen.items():
            for kind in wanted:
                error = local_error(seen, RECIPES[kind], self._scale)
                if error is None:
                    continue
                mine = self._errors.setdefault(name, {})
                mine[kind] = error if kind not in mine else mine[kind].merged(error)
                if mine[kind].worst > self._budget.local:
                    self._break(name, kind, _why(mine[kind]))
            seen.sample = None
        for name, largest in self._largest.items():
            most = max((largest.get(what, 0.0) for what in ("input", "weight", "output")), default=0.0)
            if "fp16" in self._allowed and multiplies(self._modules[name]) and most > HEADROOM * FP16.largest:
                self._break(name, "fp16", f"{most:.3g} of {FP16.largest:.0f}")

    def _break(self, name: str, kind: str, why: str) -> None:
        self._breaks.setdefault(name, {}).setdefault(kind, why)

    def _run(self, assignment: Assignment, full: FullStep) -> Loss:
        return run_candidate(self._step(self._batches[0], casts=True), assignment, full, scale=self._scale)

    def _within(self, loss: Loss) -> bool:
        return loss.loss <= self._budget.loss and loss.cosine >= self._budget.cosine

    def _search(self, search: _Search, full: FullStep) -> None:
        """Keep in fp32 what breaks in this base, until the whole is within the budget."""
        base = search.assignment.base
        if base == "fp32" or not search.fits:
            return
        kept = {**search.assignment.formats, **dict.fromkeys(self._broken(base), "fp32")}
        loss = Loss(loss=0.0, cosine=1.0, gradient=0.0)
        for _ in range(ROUNDS):
            loss = self._run(Assignment(base=base, formats=kept), full)
            new = [name for name in loss.overflowing if name not in kept]
            for name in new:
                self._break(name, base, "overflows")
                kept[name] = "fp32"
            if not new:
                break
        if not self._within(loss):
            ranked = self._ranked(base, kept)
            kept, loss = self._bisected(kept, ranked, lambda _name: "fp32", base, full)
        search.assignment = Assignment(base=base, formats=kept)
        search.fits = self._within(loss) and not loss.overflowing
        search.loss = search.loss.merged(loss)

    def _search_eight(self, search: _Search, half: _Search, full: FullStep) -> None:
        """fp8 for the linear layers that stand it, on top of bf16."""
        kept = dict(half.assignment.formats)
        before = search.assignment.formats
        demoted = {name for name, reasons in self._breaks.items() if set(FP8) <= set(reasons)}
        eight = {}
        for name in self._errors:
            if name in kept or name in demoted or not self._takes_fp8(name):
                continue
            kind = next((kind for kind in FP8 if kind not in self._breaks.get(name, {})), None)
            if kind is not None and (before.get(name) != "fp8-rowwise" or kind == "fp8-rowwise"):
                eight[name] = kind
            elif kind is not None:
                eight[name] = "fp8-rowwise"
        loss = self._run(Assignment(base="bf16", formats={**kept, **eight}), full)
        if not self._within(loss):
            ranked = sorted(eight, key=lambda name: -self._errors[name][eight[name]].worst)
            chosen, loss = self._bisected({**kept, **eight}, ranked, lambda _name: None, "bf16", full)
            for name in eight:
                if name not in chosen:
                    for kind in FP8:
                        self._break(name, kind, "the whole gradient")
            eight = {name: kind for name, kind in eight.items() if name in chosen}
        search.assignment = Assignment(base="bf16", formats={**kept, **eight})
        search.fits = self._within(loss)
        search.loss = search.loss.merged(loss)

    def _takes_fp8(self, name: str) -> bool:
        """Whether a layer has fp8 products that are faster than what is round it."""
        module = self._modules[name]
        if not name or type(module) is not nn.Linear or any(side % DIVISIBLE for side in module.weight.shape):
            return False
        if self._forced or self._rates is None:
            return True
        work = self._works[name]
        slower = seconds_of(work, "bf16", "bf16", self._rates)
        return seconds_of(work, "fp8", "bf16", self._rates) < slower

    def _bisected(
        self,
        formats: dict[str, str],
        ranked: list[str],
        other: Callable[[str], str | None],
        base: str,
        full: FullStep,
    ) -> tuple[dict[str, str], Loss]:
        """The fewest of a ranking that have to be in another format, so that the whole is within the budget."""

        def changed(count: int) -> dict[str, str]:
            found = dict(formats)
            for name in ranked[:count]:
                kind = other(name)
                if kind is None:
                    del found[name]
                else:
                    found[name] = kind
            return found

        low, high = 0, len(ranked)
        tried: dict[int, Loss] = {high: self._run(Assignment(base=base, formats=changed(high)), full)}
        if not self._within(tried[high]):
            return changed(high), tried[high]
        while high - low > 1:
            middle = (low + high) // 2 if low else min(high - 1, max(1, high // 8))
            tried[middle] = self._run(Assignment(base=base, formats=changed(middle)), full)
            if self._within(tried[middle]):
                high = middle
            else:
                low = middle
        for name in ranked[:high]:
            self._break(name, base if other(name) else "fp8", "the whole gradient")
        return changed(high), tried[high]

    def _broken(self, kind: str) -> list[str]:
        return [name for name, reasons in self._breaks.items() if kind in reasons]

    def _ranked(self, kind: str, kept: dict[str, str]) -> list[str]:
        errors = {name: each[kind].worst for name, each in self._errors.items() if kind in each and name not in kept}
        rest = [name for name in self._works if multiplies(self._modules[name]) and name not in {**kept, **errors}]
        return [*sorted(errors, key=lambda name: -errors[name]), *rest]

    def planned(self, *, measured_here: bool) -> PrecisionPlan:
        """The fastest of what fits."""
        notes = []
        searches = [*self._searches.values()]
        if self._eight is not None and self._searches["bf16"].fits and self._eight.assignment.named(*FP8):
            searches.append(self._eight)
        works = list(self._works.values())
        options = [self._option(search, works, measured_here=measured_here) for search in searches]
        fitting = [option for option in options if option.fits]
        if not fitting:
            raise UsageError(
                f"none of {', '.join(self._allowed)} is within the budget: {self._budget}",
                fix="a wider budget, or fp32",
            )
        best = min(fitting, key=lambda each: (each.ms if each.ms is not None else 0.0, -_order(each)))
        if self._forced:
            best = max(fitting, key=_order)
        full = next((each.ms for each in options if each.base == "fp32"), None)
        if self._rates is None:
            notes.append(f"the rates of {self._card.with_article} are not known: speed is not estimated")
        if best.name.endswith("fp8") and find_spec("torchao") is None:
            notes.append("fp8 needs torchao: pip install 'stayfinite[fp8]'")
        return PrecisionPlan(
            base=best.base,
            formats=dict(best.formats),
            units={name: type(module).__name__ for name, module in self._modules.items()},
            card=self._card.with_article,
            loss=best.loss,
            cosine=best.cosine,
            gradient=best.gradient,
            loss_scale=self._scale if best.base == "fp16" else 1.0,
            budget=self._budget,
            speedup=full / best.ms if full and best.ms else None,
            measured=best.measured,
            saved_gib=best.saved_gib,
            rows=tuple(self._rows()),
            options=tuple(options),
            notes=tuple(notes),
        )

    def _option(self, search: _Search, works: list[Work], *, measured_here: bool) -> Option:
        assignment = search.assignment
        seconds = None if self._rates is None else estimated_seconds(works, assignment, self._rates)
        if measured_here and search.fits:
            step = self._bench.step
            with self._bench.kept.tidied():
                seconds = measured_seconds(
                    self._bench.model, lambda: step.forward(step.fresh_batch()).backward(), assignment
                )
        return Option(
            base=assignment.base,
            formats=dict(assignment.formats),
            loss=search.loss.loss,
            cosine=search.loss.cosine,
            gradient=search.loss.gradient,
            fits=search.fits,
            ms=None if seconds is None else seconds * 1000,
            saved_gib=saved_bytes(works, assignment) / 2**30,
            measured=measured_here and search.fits,
        )

    def _rows(self) -> Iterator[Row]:
        for name, largest in self._largest.items():
            errors = {kind: asdict(error) for kind, error in self._errors.get(name, {}).items()}
            breaks = self._breaks.get(name, {})
            kind = type(self._modules[name]).__name__
            yield Row(name=name, kind=kind, largest=dict(largest), errors=errors, breaks=dict(breaks))


def _fulls(allowed: tuple[str, ...]) -> list[str]:
    """fp32 is always there to fall back to, and to be compared with."""
    return ["fp32", *(["tf32"] if "tf32" in allowed else [])]


def _order(option: Option) -> int:
    return ("fp32", "tf32", "fp16", "bf16", "bf16+fp8").index(option.name)


def _loss_scale(largest: dict[str, dict[str, float]], modules: dict[str, nn.Module]) -> float:
    """The largest power of two at which no gradient of a product comes near the end of fp16's range."""
    most = max(
        (
            max(each.get("grad_output", 0.0), each.get("grad_weight", 0.0))
            for name, each in largest.items()
            if multiplies(modules[name])
        ),
        default=0.0,
    )
    if not 0 < most < math.inf:
        return 1.0
    return min(LARGEST_SCALE, max(1.0, 2.0 ** math.floor(math.log2(HEADROOM * FP16.largest / most))))


def _why(error: LocalError) -> str:
    values = {"output": error.output, "grad_input": error.grad_input, "grad_weight": error.grad_weight}
    what = max(values, key=lambda name: values[name])
    worst = values[what]
    lost = f", {error.lost:.0%} of values become 0" if error.lost >= 0.01 else ""
    words = {"output": "output", "grad_input": "gradient of its input", "grad_weight": "gradient of its weight"}[what]
    return f"{words} does not fit{lost}" if math.isinf(worst) else f"{words} {worst:.0%} off{lost}"
