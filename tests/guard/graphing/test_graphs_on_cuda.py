"""A guarded step as a CUDA graph: the veto inside it, no host sync, and what goes on beside it.

Where pytest is missing:  PYTHONPATH=src:tests python3 tests/guard/graphing/test_graphs_on_cuda.py
"""

import copy
import gc
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from on_a_gpu import MARKS, each, no_host_wait, run_all
from stayfinite import Action, Code, Guard, Policy
from stayfinite.guard.graphing.graphed import WARM_UP, GraphedStep

pytestmark = MARKS

CUDA = torch.device("cuda", 0)
Batch = dict[str, Tensor]


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": torch.optim.AdamW,
    "Adam": torch.optim.Adam,
    "SGD momentum": lambda p, **more: torch.optim.SGD(p, momentum=0.9, **more),
}


class Training:
    """A small guarded training with BatchNorm and a moving schedule."""

    def __init__(
        self, optimizer: str = "AdamW", *, half: bool = False, dropout: float = 0.0, width: int = 32, **settings: Any
    ) -> None:
        torch.manual_seed(1)
        self.half = half
        # Without a bias before the norm, which would take it away: its gradient is rounding and nothing else.
        normed = [nn.Linear(8, width, bias=False), nn.BatchNorm1d(width)]
        layers = [*normed, nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, 4)]
        self.model = nn.Sequential(*layers).to(CUDA)
        rate = torch.tensor(1e-3, device=CUDA)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters(), lr=rate, fused=True)
        self.scheduler = LambdaLR(self.optimizer, lambda step: 1 / (1 + step / 50))
        self.scaler = torch.amp.GradScaler("cuda", init_scale=256.0) if half else None
        self.guard = Guard(
            self.model, self.optimizer, self.scheduler, self.scaler, max_norm=0.5, forward=self.loss,
            console=Console(quiet=True), **settings,
        )  # fmt: skip

    def loss(self, batch: Batch) -> Tensor:
        with torch.autocast("cuda", torch.float16, enabled=self.half):
            out = self.model(batch["x"])
        return F.mse_loss(out.float(), batch["y"])

    def everything(self) -> list[Any]:
        """All that a refused step must not change."""
        optimizer = copy.deepcopy(self.optimizer.state_dict())
        schedule = {name: value for name, value in self.scheduler.state_dict().items() if name != "lr_lambdas"}
        return [copy.deepcopy(self.model.state_dict()), optimizer["state"], optimizer["param_groups"],
                copy.deepcopy(schedule)]  # fmt: skip


def batches(count: int, rows: int = 32) -> list[Batch]:
    source = torch.Generator().manual_seed(2)
    made = torch.randn(count, rows, 12, generator=source).to(CUDA)
    return [{"x": each_one[:, :8].clone(), "y": each_one[:, 8:].clone()} for each_one in made]


def spoilt(batch: Batch, value: float = float("nan")) -> Batch:
    x = batch["x"].clone()
    x[0, 0] = value
    return {**batch, "x": x}


def replaying(training: Training, given: list[Batch]) -> GraphedStep:
    """A step that has been recorded and replayed with these batches."""
    step = training.guard.graphed()
    for batch in given:
        step(batch)
    training.guard.flush()
    assert step._replays, "nothing was recorded"
    return step


@each("half", [False, True])
@each("optimizer", list(OPTIMIZERS))
def test_a_refused_step_inside_a_replayed_graph_changes_no_bit(optimizer: str, half: bool) -> None:
    training = Training(optimizer, half=half, policy=Policy.refuse_spikes(snapshots=False))
    *healthy, last = batches(30)
    step = replaying(training, healthy)
    bad = {
        "NaN": spoilt(last),
        "infinity": spoilt(last, float("inf")),
        "spike": {**last, "y": 1e3 * last["y"]},
    }
    for name, batch in bad.items():
        before = training.everything()
        step(batch)
        training.guard.flush()
        assert training.guard.decisions[-1].refused, name
        torch.testing.assert_close(training.everything(), before, rtol=0, atol=0)
    # And the next good one is taken.
    step(last)
    training.guard.flush()
    assert not training.guard.decisions[-1].refused
    assert not torch.equal(training.model[0].weight, before[0]["0.weight"])


@each("half", [False, True])
def test_a_graphed_training_is_the_plain_one(half: bool) -> None:
    plain, graphed = (Training(half=half, policy=Policy(snapshots=False)) for _ in range(2))
    step = graphed.guard.graphed()
    for number, batch in enumerate(batches(60)):
        batch = spoilt(batch) if number in (20, 21, 40) else batch
        batch = {**batch, "y": 1e3 * batch["y"]} if number == 50 else batch
        plain.guard.step(plain.guard.forward(batch))
        step(batch)
        if number in (20, 21, 40):
            # The schedule stands still once the refusal is heard of; when that is differs from run to run.
            plain.guard.flush()
            graphed.guard.flush()
    for training in (plain, graphed):
        training.guard.flush()
    told = [[(d.step, d.code, d.signals.batch) for d in t.guard.decisions] for t in (plain, graphed)]
    assert told[0] == told[1]
    unusual = (Code.UNUSUAL_LOSS, Code.UNUSUAL_GRADIENT)
    assert [d.step for d in graphed.guard.decisions if d.code in unusual] == [51]
    near = {"rtol": 1e-2, "atol": 1e-3} if half else {"rtol": 1e-3, "atol": 1e-5}
    torch.testing.assert_close(graphed.everything()[:2], plain.everything()[:2], **near)
    for one, other in zip(graphed.guard.decisions, plain.guard.decisions, strict=True):
        assert one.signals.lr is not None
        assert abs(one.signals.lr - (other.signals.lr or 0)) < 1e-9


@each("graph", [False, True])
@each("half", [False, True])
def test_two_hundred_steps_with_snapshots_and_every_statistic_never_wait(half: bool, graph: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        policy = Policy(sample_every=1, prove_steps=5)
        training = Training(half=half, width=512, run_dir=directory, policy=policy)
        given = batches(210)
        step = replaying(training, given[:10]) if graph else None
        if step is None:
            for batch in given[:10]:
                training.guard.step(training.guard.forward(batch))
        with no_host_wait():
            for batch in given[10:]:
                if step is None:
                    training.guard.step(training.guard.forward(batch))
                else:
                    step(batch)
        training.guard.close()
        assert len(training.guard.decisions) == 210
        assert not any(decision.refused for decision in training.guard.decisions)
        assert training.guard._recovery.known_good() is not None
        assert (Path(directory) / "layers.npz").exists()


def test_random_numbers_are_drawn_anew_at_each_replay() -> None:
    training = Training(dropout=0.5, policy=Policy(snapshots=False))
    training.optimizer.param_groups[0]["lr"].zero_()
    training.scheduler.base_lrs = [0.0]
    same = batches(1)[0]
    step = replaying(training, [same] * 6)
    assert len({step(same).item() for _ in range(5)}) > 1


def test_a_smaller_batch_is_taken_without_the_graph() -> None:
    training = Training(policy=Policy(snapshots=False))
    step = replaying(training, batches(8))
    losses = [step(batch) for batch in [*batches(1, rows=7), *batches(3)]]
    training.guard.flush()
    assert [decision.step for decision in training.guard.decisions] == list(range(1, 13))
    assert all(torch.isfinite(loss) for loss in losses)


def test_after_a_rollback_the_step_is_recorded_anew() -> None:
    training = Training(policy=Policy(max_vetoes_in_a_row=3, prove_steps=2))
    given = batches(60)
    step = replaying(training, given[:30])
    for batch in given[:12]:
        step(spoilt(batch))
        training.guard.flush()
    assert any(decision.action is Action.ROLLBACK for decision in training.guard.decisions)
    for batch in given[30:]:
        step(batch)
    training.guard.flush()
    assert step._replays
    assert not training.guard.decisions[-1].refused
    assert all(torch.isfinite(parameter).all() for parameter in training.model.parameters())


def test_statistics_of_a_graph_are_those_of_plain_steps() -> None:
    with tempfile.TemporaryDirectory() as directory:
        import numpy

        tables = []
        for name in ("plain", "graph"):
            policy = Policy(sample_every=1, snapshots=False)
            training = Training(run_dir=Path(directory) / name, policy=policy)
            step = training.guard.graphed() if name == "graph" else None
            for batch in batches(12):
                if step is None:
                    training.guard.step(training.guard.forward(batch))
                else:
                    step(batch)
            training.guard.close()
            with numpy.load(Path(directory) / name / "layers.npz") as layers:
                tables.append({field: torch.from_numpy(layers[field]) for field in ("steps", "norm", "update_ratio")})
        plain, graphed = tables
        assert graphed["steps"].tolist() == list(range(1, 13))
        for field in plain:
            torch.testing.assert_close(graphed[field], plain[field], rtol=1e-2, atol=1e-6)


def test_a_bad_batch_in_a_graph_is_captured_and_explained() -> None:
    with tempfile.TemporaryDirectory() as directory:
        training = Training(run_dir=directory, policy=Policy(snapshots=False))
        given = batches(12)
        step = replaying(training, given[:10])
        step(spoilt(given[10]))
        training.guard.flush()
        training.guard.close()
        assert (Path(directory) / "incidents" / "0001" / "autopsy.json").exists()


def test_a_recording_holds_all_that_its_graphs_read() -> None:
    plain, graphed = (Training(policy=Policy(snapshots=False)) for _ in range(2))
    given = batches(40)
    step = replaying(graphed, given[:10])
    # Whatever was let go is given to somebody else now, on the host and on the device.
    gc.collect()
    torch.cuda.empty_cache()
    getattr(torch._C, "_host_emptyCache", int)()
    others = [torch.full((size,), -1, pin_memory=True) for size in range(1, 200)]
    others += [torch.full((size,), -1, device=CUDA) for size in range(1, 200)]
    for batch in given[10:]:
        step(batch)
    for batch in given:
        plain.guard.step(plain.guard.forward(batch))
    for training in (plain, graphed):
        training.guard.flush()
        assert not any(decision.refused for decision in training.guard.decisions)
    assert len(others) == 398
    for name, norm in plain.guard.gradient_norms.items():
        assert math.isclose(graphed.guard.gradient_norms[name], norm, rel_tol=1e-3, abs_tol=1e-6), name


def test_a_step_is_recorded_where_no_closer_look_was_ever_taken() -> None:
    training = Training(policy=Policy(sample_every=1000, snapshots=False))
    training.guard._step = 500  # as after a resume
    step = replaying(training, batches(WARM_UP + 3))
    assert step._sample is not None


def test_a_graph_that_nobody_holds_does_not_break_off_the_recording_of_another() -> None:
    old = Training(policy=Policy(snapshots=False))
    step = replaying(old, batches(WARM_UP + 3))
    old.guard.close()
    ring: list[Any] = [step]
    ring.append(ring)  # only a collection finds it
    held = gc.get_threshold()
    del old, step, ring
    gc.set_threshold(20)
    try:
        replaying(Training(policy=Policy(snapshots=False)), batches(WARM_UP + 3))
    finally:
        gc.set_threshold(*held)


def test_a_recorded_step_uses_the_kernels() -> None:
    training = Training(policy=Policy(snapshots=False))
    step = replaying(training, batches(WARM_UP + 3))
    fused = training.guard._reader.fused
    assert fused is not None
    assert not fused.trouble, fused.trouble
    assert step._reading.gradients.facts is not None


@each("compiled", ["model", "optimizer"])
def test_what_torch_compiles_is_guarded_as_well(compiled: str) -> None:
    training = Training(policy=Policy(snapshots=False))
    if compiled == "model":
        training.model.forward = torch.compile(training.model.forward)  # type: ignore[method-assign]
    else:
        training.optimizer.step = torch.compile(training.optimizer.step)  # type: ignore[method-assign]
    *healthy, last = batches(12)
    for batch in healthy:
        training.guard.step(training.guard.forward(batch))
    training.guard.flush()
    before = training.everything()
    training.guard.step(training.guard.forward(spoilt(last)))
    training.guard.flush()
    assert training.guard.decisions[-1].refused
    torch.testing.assert_close(training.everything(), before, rtol=0, atol=0)


if __name__ == "__main__":
    run_all(globals())
