"""From the first sanity check to the last checkpoint: what else a Trainer does round a training."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torchmetrics import MeanMetric

from lightning_training import LIGHTNING_SAYS, Regression, Witness, build, error, events, fit, guarded, loader, trainer
from stayfinite import Policy, TrainingDiverged
from stayfinite.integrations.lightning import StayFinite
from tiny_training import Lines

pytestmark = LIGHTNING_SAYS


def own(thing: object) -> set[str]:
    return {name for name, value in vars(thing).items() if callable(value)}


@pytest.mark.parametrize("ending", ["well", "badly"])
def test_nothing_stays_in_front_of_anything_however_a_fit_ends(tmp_path, ending):
    class Failing(Regression):
        def on_train_batch_end(self, *_):
            if ending == "badly" and self.trainer.global_step == 9:
                raise ValueError("something else")

    module = build(Failing, "nan-batch", (8,))
    before = own(module)
    runner = trainer(tmp_path, [guarded(tmp_path)])
    seen = []

    class Look(pl.Callback):
        def on_fit_start(self, trainer, pl_module):
            seen.extend((own(trainer.optimizers[0]), own(trainer.lr_scheduler_configs[0].scheduler)))
            self.step = trainer.optimizers[0].step

        def on_train_batch_end(self, trainer, *_):
            assert trainer.optimizers[0].step is not self.step

    look = Look()
    runner.callbacks.append(look)
    if ending == "badly":
        with pytest.raises(ValueError, match="something else"):
            runner.fit(module, loader((8,)))
        assert events(tmp_path)[-1]["event"] == "failed"
    else:
        runner.fit(module, loader((8,)))
        assert events(tmp_path)[-1]["event"] == "closed"
    assert own(module) == before
    assert [own(runner.optimizers[0]), own(runner.lr_scheduler_configs[0].scheduler)] == seen
    assert runner.optimizers[0].step is look.step
    assert type(runner.lr_scheduler_configs[0].scheduler) is torch.optim.lr_scheduler.LambdaLR


def test_a_sanity_check_and_validation_are_left_alone(tmp_path):
    alone, ours = build(), build()
    lines = []
    for module, callbacks in ((alone, []), (ours, [guarded(tmp_path)])):
        runner = trainer(tmp_path, callbacks, num_sanity_val_steps=2, val_check_interval=10)
        torch.manual_seed(11)
        runner.fit(module, loader(), loader(seed=2))
        lines.append(float(runner.callback_metrics["val_loss"]))
    assert lines[0] == lines[1]
    assert len((tmp_path / "run" / "steps.jsonl").read_text().splitlines()) == 40


def test_fast_dev_run_is_guarded_and_writes_nothing(tmp_path):
    callback = StayFinite(console=Lines())
    module = build()
    trainer(tmp_path, [callback], fast_dev_run=True).fit(module, loader())
    assert [each.step for each in callback.guards[0].decisions] == [1]
    assert not list(tmp_path.iterdir())


def test_by_default_the_run_lies_in_the_trainers_log_directory_and_never_over_another_one(tmp_path):
    runner = trainer(tmp_path, [StayFinite(console=Lines())], logger=CSVLogger(tmp_path, "logs"))
    runner.fit(build(), loader())
    assert (tmp_path / "logs" / "version_0" / "stayfinite" / "steps.jsonl").exists()
    for place in ("stayfinite", "stayfinite-2"):
        trainer(tmp_path, [StayFinite(console=Lines())], limit_train_batches=2).fit(build(), loader())
        assert (tmp_path / place / "steps.jsonl").exists()
    trainer(tmp_path, [StayFinite(run_dir=None, console=Lines())], limit_train_batches=2).fit(build(), loader())
    assert not (tmp_path / "stayfinite-3").exists()


def test_the_trainers_loggers_are_told_of_norm_and_vetoes(tmp_path):
    loggers = [CSVLogger(tmp_path, "csv"), TensorBoardLogger(tmp_path, "board")]
    runner = trainer(tmp_path, [guarded(tmp_path)], logger=loggers, log_every_n_steps=1)
    runner.fit(build(Regression, "nan-batch"), loader((7,)))
    rows = (tmp_path / "csv" / "version_0" / "metrics.csv").read_text().splitlines()
    names = rows[0].split(",")
    vetoes = [row.split(",")[names.index("stayfinite/vetoes")] for row in rows[1:]]
    assert [float(each) for each in vetoes] == [0.0] * 7 + [1.0] * 33
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path / "board" / "version_0")).Reload()
    assert [each.value for each in board.Scalars("stayfinite/vetoes")] == [0.0] * 7 + [1.0] * 33
    assert len(board.Scalars("stayfinite/grad_norm")) == 40


class Counting(Regression):
    """Keeps a metric, writes to the logger itself, and prints."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.mean = MeanMetric()

    def training_step(self, batch, batch_idx):
        self.mean.update(torch.ones(()))
        self.logger.experiment.add_scalar("own", batch_idx, self.trainer.global_step)
        self.print("seen")
        return super().training_step(batch, batch_idx)


def test_running_a_step_again_counts_nothing_twice(tmp_path, capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    module = build(Counting, "nan-batch")
    fit(tmp_path, [guarded(tmp_path)], module, logger=TensorBoardLogger(tmp_path, "board"))
    assert events(tmp_path, "autopsy")[0]["cause"] == "bad-data-row"
    assert module.mean._update_count == 40
    assert float(module.mean.weight) == 40.0
    board = EventAccumulator(str(tmp_path / "board" / "version_0")).Reload()
    assert len(board.Scalars("own")) == 40
    assert capsys.readouterr().out.count("seen") == 40


@pytest.mark.parametrize("ours", [True, False])
def test_early_stopping_has_no_reason_to_stop(tmp_path, ours):
    module, stopping = build(Regression, "nan-batch"), EarlyStopping("val_loss", check_finite=True)
    runner = trainer(tmp_path, [stopping, *([guarded(tmp_path)] if ours else [])], max_epochs=3)
    runner.fit(module, loader((7,)), loader(seed=2))
    assert (runner.current_epoch == 3) is ours
    assert (error(module) < 0.5) is ours


def test_fitting_twice_goes_on_where_the_first_fit_ended(tmp_path):
    callback, module = guarded(tmp_path), build(Regression, "nan-batch", (7, 47))
    runner = trainer(tmp_path, [callback])
    runner.fit(module, loader((7,)))
    runner.fit_loop.max_epochs = 2
    runner.fit(module, loader((7,)))
    assert [each["step"] for each in events(tmp_path, "veto")] == [8, 48]
    assert [each["event"] for each in events(tmp_path) if each["event"] in ("start", "restart")] == ["start", "restart"]


def test_another_trainer_with_the_same_callback_starts_afresh(tmp_path):
    callback = guarded(tmp_path)
    for _ in range(2):
        trainer(tmp_path, [callback]).fit(build(), loader())
        assert callback.guards[0].decisions[-1].step == 40


def test_a_run_that_nothing_helps_is_stopped_and_keeps_its_weights(tmp_path):
    policy = Policy(max_vetoes_in_a_row=2, patience=1, max_cuts=1, prove_steps=2, max_rollbacks=1)
    module = build(Regression, "nan-batch", tuple(range(20, 40)))
    with pytest.raises(TrainingDiverged):
        fit(tmp_path, [guarded(tmp_path, policy)], module)
    done = [each["event"] for each in events(tmp_path)]
    assert {"veto", "cut", "rollback", "stop", "stopped"} <= set(done)
    assert all(bool(torch.isfinite(value).all()) for value in module.state_dict().values())


def test_a_rollback_takes_weights_moments_and_schedule_back_together(tmp_path):
    policy = Policy(max_vetoes_in_a_row=2, patience=1, max_cuts=0, prove_steps=2)
    witness, module = Witness(), build(Regression, "nan-batch", (20, 21, 22))
    fit(tmp_path, [guarded(tmp_path, policy), witness], module)
    (rollback,) = events(tmp_path, "rollback")
    assert witness.after[22] == witness.after[rollback["to_step"] - 1]
    assert error(module) < 0.5


def test_watching_only_observes(tmp_path):
    alone, ours = build(Regression, "nan-batch"), build(Regression, "nan-batch")
    fit(tmp_path, [], alone)
    fit(tmp_path, [guarded(tmp_path, Policy.watch())], ours)
    assert str(alone.state_dict()) == str(ours.state_dict())
    assert events(tmp_path, "autopsy")[0]["cause"] == "bad-data-row"


def test_a_checkpoint_can_be_read_without_trust(tmp_path):
    fit(tmp_path, [guarded(tmp_path), ModelCheckpoint(tmp_path / "saved", save_last=True)], enable_checkpointing=True)
    saved = torch.load(tmp_path / "saved" / "last.ckpt", weights_only=True)
    assert json.loads(json.dumps(saved["callbacks"]["StayFinite"]))["guards"][0]["step"] == 40


def test_a_callback_survives_pickling_before_a_fit_and_after(tmp_path):
    callback = guarded(tmp_path)
    fit(tmp_path, [callback])
    copy = pickle.loads(pickle.dumps(callback))
    assert isinstance(copy, StayFinite)
    assert isinstance(copy, pl.Callback)
    fit(tmp_path, [copy])


USER = """
import warnings; warnings.simplefilter("ignore")
{first}
{second}
import torch
from torch.utils.data import DataLoader, TensorDataset

class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 1)
    def training_step(self, batch, batch_idx):
        return self.line(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

data = torch.randn(40, 3)
data[9] = float("nan")
callback = StayFinite(run_dir=None)
trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[callback],
                     enable_progress_bar=False, enable_model_summary=False)
model = Line()
trainer.fit(model, DataLoader(TensorDataset(data), batch_size=4))
assert isinstance(callback, pl.Callback)
assert torch.isfinite(model.line.weight).all()
print("refused", sum(each.refused for each in callback.guards[0].decisions))
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("package", ["import lightning as pl", "import pytorch_lightning as pl"])
def test_both_names_of_lightning_work_whichever_is_imported_first(package, first):
    lines = [package, "from stayfinite.integrations.lightning import StayFinite"]
    code = USER.format(first=lines[not first], second=lines[first])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "refused 1" in done.stdout, done.stderr[-2000:]
