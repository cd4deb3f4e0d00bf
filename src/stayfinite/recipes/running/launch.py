"""Start a recipe: resume with the same settings or not at all, choose the precision, check, record the settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.finding import Finding
from stayfinite.core.policy import Policy, Precision
from stayfinite.errors import NotReady, UsageError
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.inspection.inspection import Inspection
from stayfinite.inspection.preflight import inspect_training
from stayfinite.readers.data.chunk import Source
from stayfinite.recipes.running.place import choose_precision, is_planned, use_plan
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.running.records import RUN, finished_result, read_launch, read_record, write_launch
from stayfinite.recipes.running.sharding import Team
from stayfinite.recipes.streaming.loading import note_files, require_same_files, streams

Check = Literal["stop", "warn", "off"]
"""What to do about findings before step 1."""
FILE = "check.json"
OF_FP16 = ("fp16-overflow", "fp16-overflow-model-family", "loss-scale-collapse")
"""Causes that another precision fixes."""


def look_before_start(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    forward: Callable[[Any], Any],
    *,
    precision: Precision,
    scaler: GradScaler | None,
    then: Check,
    directory: Path,
    say: Callable[[str], None],
    steps: int = 10,
) -> Inspection | None:
    """Check the training and write ``check.json``. Leaves the training unchanged.

    Arguments:
        forward: as passed to the guard; its precision is applied here.
        then: `stop` raises on an error, `warn` prints it, `off` skips the check.

    Raises:
        NotReady: training would fail.
    """
    if then == "off":
        return None
    control = PrecisionControl(precision, next(model.parameters()).device)

    def in_precision(batch: Any) -> Any:
        with control.autocast():
            return forward(batch)

    found = inspect_training(model, optimizer, batch, in_precision, scaler, steps=steps)
    (directory / FILE).write_text(json.dumps(found.to_json(), indent=1), encoding="utf-8")
    wrong = [each for each in found.findings if each.severity == "error"]
    for each in found.findings:
        if each.severity != "info":
            fix = _own_fix(each, precision)
            say(f"check: {each.severity}: {each.title} ({each.code} {each.cause}). {fix}")
    if wrong and then == "stop":
        worst = wrong[0]
        raise NotReady(
            f"the check before step 1 found {worst.code} ({worst.cause}): {worst.title}",
            fix=f"{_own_fix(worst, precision).rstrip('. ')}. To start anyway: --check warn",
        )
    if not any(each.severity != "info" for each in found.findings):
        looked = sum(line.status != "skip" for line in found.lines)
        say(f"check: ready to launch, {looked} checks, no problem found")
    return found


def holds_in_fp16(model: nn.Module, optimizer: Optimizer, batch: Any, forward: Callable[[Any], Any]) -> str:
    """Why this step would fail in fp16; empty if proved safe."""
    found = inspect_training(model, optimizer, batch, forward, steps=0, precision="fp16")
    guilty = [each for each in found.findings if each.cause in OF_FP16]
    if guilty:
        return guilty[0].title
    looked = [line for line in found.lines if line.group == "Precision" and line.status == "pass"]
    return "" if looked else "the fp16 headroom could not be measured"


def scaler_for(precision: Precision, device: torch.device) -> GradScaler | None:
    """A GradScaler for fp16, else None."""
    return GradScaler(device.type) if precision == "fp16" else None


def _own_fix(found: Finding, precision: Precision) -> str:
    """The fix, starting with the recipe's own flag."""
    return f"--precision bf16. Or: {found.fix}" if precision == "fp16" and found.cause in OF_FP16 else found.fix


Say = Callable[[str], None]
ENDS = ("epochs", "steps", "max_steps", "minutes", "patience")
"""Settings that end a training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of a recipe."""

    recipe: str
    config: Any
    place: Place
    say: Say
    output: Path
    resuming: bool
    """Whether there is a checkpoint to resume from."""
    in_batch: int
    """Number of ranks' rows in a batch; a resumed run keeps its own."""
    finished: bool = False
    """Whether the same settings have finished this run already."""

    @classmethod
    def of(
        cls, recipe: str, config: Any, place: Place, say: Say, fixed: Collection[str], per_rank: Collection[str] = ()
    ) -> Launch:
        """Look into the output directory, and seed. Arguments as for :func:`goes_on`.

        Raises:
            UsageError: a run with other data or another model is there.
        """
        output, ranks = Path(config.output_dir), place.row_ranks if per_rank else 1
        resuming = place.by_first(lambda: goes_on(output, recipe, config, fixed, say, ranks=ranks, per_rank=per_rank))
        finished = resuming and place.by_first(lambda: finished_with(output, config) is not None)
        in_batch = ranks_in_batch(output, config, ranks, per_rank, resuming=resuming)
        torch.manual_seed(config.seed)
        return cls(
            recipe=recipe, config=config, place=place, say=say, output=output, resuming=resuming, in_batch=in_batch,
            finished=finished,
        )  # fmt: skip

    def read(
        self, what: str, files: Callable[[], list[Source]], streamed: Callable[..., Any], loaded: Callable[..., Any]
    ) -> tuple[list[Source], Any, Any, Any]:
        """Files, their stream if they are streamed, and rows to train and to validate with, alike on all ranks.

        Arguments:
            what: the rows, in words.
            streamed: makes the stream; given settings, files and ``say``.
            loaded: reads all rows; given settings and ``say``.
        """
        config, place = self.config, self.place
        found, stream = place.together(files), None
        if streams(config.stream, found):
            if self.resuming:
                place.together(lambda: require_same_files(found, self.output))
            stream = place.together(lambda: streamed(config, found, self.say))
            training, validation = stream.training, stream.validation
        else:
            training, validation = place.together(lambda: loaded(config, self.say))
        place.require_alike(what, [*training, *validation])
        return found, stream, training, validation

    def settle(self, asked: str, *training: Any) -> tuple[Precision, GradScaler | None]:
        """The precision, the same on all ranks, and its scaler.

        Arguments:
            asked: the setting.
            training: model, optimizer, batch and forward pass.
        """
        place, several = self.place, self.place.count > 1
        if is_planned(asked):
            precision = use_plan(asked, *training, directory=self.output, say=self.say, several=several)
        else:
            overflow = partial(holds_in_fp16, *training)
            precision = place.by_first(lambda: choose_precision(asked, place.device, self.say, overflow))
        return precision, scaler_for(precision, place.device)

    def look(
        self, *training: Any, precision: Precision, scaler: GradScaler | None = None, again: bool = False, **more: Any
    ) -> None:
        """Check the training on rank 0. Raises NotReady if it would fail.

        Arguments:
            training: model, optimizer, batch and forward pass.
            again: also before a resumed run.
        """
        then: Check = "off" if self.resuming and not again else self.config.check
        self.place.by_first(
            lambda: look_before_start(
                *training, precision=precision, scaler=scaler, then=then, directory=self.output, say=self.say, **more
            ) and None
        )  # fmt: skip

    def record(
        self,
        steps: int | None,
        training: Sequence[Any],
        validation: Sequence[Any],
        streamed: Sequence[Source] | None = None,
    ) -> None:
        """Write settings, plan and size of the data to run.json, on rank 0.

        Arguments:
            streamed: the files, if they are streamed; ``training`` is a sample then.
        """
        if not self.place.first:
            return
        more: dict[str, Any] = {} if steps is None else {"steps": steps}
        data = {"sampled_rows" if streamed is not None else "training_rows": len(training)}
        data |= {"validation_rows": len(validation)}
        write_launch(self.output, self.recipe, self.config, data=data, ranks_in_batch=self.in_batch, **more)
        if streamed is not None:
            note_files(streamed, self.output)

    def policy(self, precision: Precision, an_epoch: int, **more: Any) -> Policy:
        """The guard's policy: a checkpoint per epoch, or every twentieth of the minutes.

        Arguments:
            an_epoch: steps.
        """
        config, minutes = self.config, getattr(self.config, "minutes", None)
        return Policy(
            precision=precision, checkpoint_steps=config.checkpoint_steps or (an_epoch if minutes is None else None),
            checkpoint_minutes=None if minutes is None else max(0.2, minutes / 20),
            keep_checkpoints=config.keep_checkpoints, **more,
        )  # fmt: skip

    def team(self, model: Any, optimizer: Any) -> Team:
        """The model in training on all ranks, each with its own dropout."""
        team = Team(model, optimizer, self.place, shard=getattr(self.config, "shard", False))
        self.place.seed(self.config.seed)
        return team


def goes_on(
    directory: Path,
    recipe: str,
    config: Any,
    fixed: Collection[str],
    say: Say,
    *,
    ranks: int = 1,
    per_rank: Collection[str] = (),
) -> bool:
    """Whether there is a checkpoint to resume from.

    Arguments:
        directory: of the run.
        recipe: name of the recipe.
        config: its current settings.
        fixed: settings that must not change: data, model, order.
        say: receives the output directory and changed settings.
        ranks: current number.
        per_rank: settings per rank, whose total over ranks must not change.

    Raises:
        UsageError: a run with other data or another model is there.
    """
    tell = (lambda _: None) if getattr(config, "dry_run", False) else say
    if not any((directory / "checkpoints").glob("step-*")) or not (directory / RUN).exists():
        if (directory / RUN).exists():
            tell(f"writing to {directory}: its run has no checkpoint yet, starting from the beginning")
        else:
            tell(f"writing to {directory}; resume with the same command")
        return False
    before = read_launch(directory, recipe)
    now = json.loads(json.dumps(asdict(config)))
    changed = {name: (before[name], value) for name, value in now.items() if name in before and before[name] != value}
    words = {name: f"{name} {old!r} -> {new!r}" for name, (old, new) in changed.items()}
    then = _ranks_of(directory)
    same = {name for name in per_rank if name in changed and then * (changed[name][0] or 0) == ranks * (now[name] or 0)}
    if wrong := [words[name] for name in changed if name in fixed and name not in same]:
        raise UsageError(
            f"{directory} holds a run with other settings: {'; '.join(wrong)}",
            fix="keep the old settings, use another --output-dir, or remove that directory to start over",
        )
    if (done := finished_with(directory, config)) is not None:
        ends = [f"--{name.replace('_', '-')}" for name in ENDS if now.get(name)]
        tell(f"the run in {directory} is finished after {done['steps']} steps. To continue, raise {' or '.join(ends)}")
    else:
        tell(f"resuming the run in {directory}")
    if ranks != then and not same:
        say(f"ranks {then} -> {ranks}: batches and steps stay the same")
    if changed:
        say(f"resuming with changed settings: {'; '.join(words.values())}")
    return True


def finished_with(directory: Path, config: Any) -> dict[str, Any] | None:
    """The result of a run that has nothing left to train: same end, and its last checkpoint is that of the result."""
    before = read_record(directory / RUN)["config"]
    if any(before.get(name) != getattr(config, name, None) for name in ENDS):
        return None
    kept = (path.name.removeprefix("step-").partition(".")[0] for path in (directory / "checkpoints").glob("step-*"))
    newest = max((int(step) for step in kept if step.isdigit()), default=0)
    done = finished_result(directory, newest)
    return done if done is not None and done["steps"] == newest else None


def ranks_in_batch(directory: Path, config: Any, ranks: int, per_rank: Collection[str], *, resuming: bool) -> int:
    """Number of ranks' rows in a batch: the current ranks, or those at the start of a resumed run.

    A resumed run keeps its batches and its position, whatever the number of ranks.

    Arguments:
        ranks: current number.
        per_rank: settings per rank. If changed, they were adjusted to the ranks.
    """
    if not resuming:
        return ranks
    before = read_record(directory / RUN)["config"]
    same = all(before.get(name) == getattr(config, name) for name in per_rank)
    return _ranks_of(directory) if same else ranks


def _ranks_of(directory: Path) -> int:
    return int(read_record(directory / RUN).get("ranks_in_batch", 1))
