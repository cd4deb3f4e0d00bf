"""A run directory, copied to the real MLflow and the real Aim and read back; skipped where they are not installed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from child_processes import environment
from guarded_training import NAN, GuardedTraining
from stayfinite.errors import MissingExtra
from stayfinite.integrations.loggers import AimSink, MlflowSink, following, mirror

needs_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed: pip install mlflow")
needs_aim = pytest.mark.skipif(find_spec("aim") is None, reason="aim is not installed: pip install aim")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loggers") / "first"
    training = GuardedTraining(folder)
    training.until_nan(6)
    training.steps(3)
    training.guard.close()
    return folder


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A place where MLflow keeps runs as files: no server, no network."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


@needs_mlflow
def test_mlflow_has_the_curves_the_refused_step_as_tags_and_the_report_and_incident_as_artifacts(run, store):
    from mlflow import MlflowClient

    mirror(run, MlflowSink(run, tracking_uri=store))
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("stayfinite")
    [found] = client.search_runs([experiment.experiment_id], 'tags."stayfinite.refused_steps" = "7"')
    assert (found.info.run_name, found.info.status) == ("first", "FINISHED")
    history = client.get_metric_history(found.info.run_id, "stayfinite/loss")
    assert [each.step for each in history] == list(range(1, 11))
    assert [each.step for each in history if math.isnan(each.value)] == [7]
    assert found.data.metrics["stayfinite/vetoes"] == 1.0
    assert "bad-data-row" in found.data.tags["stayfinite.findings"]
    assert "step 7: veto" in found.data.tags["stayfinite.last_veto"]
    got = Path(client.download_artifacts(found.info.run_id, "stayfinite"))
    assert (got / "report.html").read_bytes() == (run / "report.html").read_bytes()
    assert {each.name for each in (got / "incidents/0001").iterdir()} == {"incident.json", "autopsy.json"}


@needs_mlflow
def test_with_batches_the_incident_of_mlflow_is_whole(run, store):
    from mlflow import MlflowClient

    mirror(run, MlflowSink(run, tracking_uri=store, experiment="whole", batches=True))
    client = MlflowClient(store)
    [found] = client.search_runs([client.get_experiment_by_name("whole").experiment_id])
    got = Path(client.download_artifacts(found.info.run_id, "stayfinite/incidents/0001"))
    names = {each.name for each in got.iterdir()}
    assert names == {each.name for each in (run / "incidents/0001").iterdir()} > {"incident.json"}


@needs_mlflow
def test_the_active_run_of_mlflow_is_used_and_left_open_while_training_goes_on(store, tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(store)
    with mlflow.start_run() as active:
        training = GuardedTraining(tmp_path / "run")
        with following(tmp_path / "run", MlflowSink(tmp_path / "run"), every=0.02):
            training.steps(4)
            mlflow.log_metric("mine", 1.0, step=4)
            training.steps(1, NAN)
            training.guard.close()
        assert mlflow.active_run().info.run_id == active.info.run_id
        mlflow.log_metric("mine", 2.0, step=5)
    found = mlflow.get_run(active.info.run_id)
    assert found.data.metrics["mine"] == 2.0
    assert found.data.tags["stayfinite.refused_steps"] == "5"
    assert found.data.metrics["stayfinite/vetoes"] == 1.0


@needs_mlflow
def test_names_that_mlflow_refuses_and_a_thousand_steps_are_taken(store, tmp_path):
    from mlflow import MlflowClient

    sink = MlflowSink(tmp_path / "run", tracking_uri=store)
    for step in range(1, 1001):
        sink.scalars(step, {"stayfinite/parts/a:ü(1)": 1.0, "stayfinite/loss": 1.0 / step})
    for step in range(1, 1001):
        if step % 4 == 0:
            sink.event(step, "veto", "x" * 9000)
    sink.close()
    client = MlflowClient(store)
    [found] = client.search_runs([client.get_experiment_by_name("stayfinite").experiment_id])
    assert len(client.get_metric_history(found.info.run_id, "stayfinite/loss")) == 1000
    assert len(client.get_metric_history(found.info.run_id, "stayfinite/parts/a___1_")) == 1000
    assert found.data.tags["stayfinite.refused_steps"].endswith(", 800 and 50 more")


AIM = """
import json, sys
from stayfinite.integrations.loggers import AimSink, mirror
mirror(sys.argv[1], AimSink(repo=sys.argv[2], experiment="first", name="one", system_tracking_interval=None))
"""
READ_AIM = """
import json, sys, aim
[name] = aim.Repo(sys.argv[1]).list_all_runs()
run = aim.Run(name, repo=sys.argv[1])
curves = {each.name: each.data.items_list() for each in run.metrics()}
steps, (losses, *_) = curves["stayfinite/loss"]
print("READ", json.dumps([run.name, list(steps), list(losses), sorted(curves), run["stayfinite"]]))
run.close()
"""


@needs_aim
def test_aim_has_the_curves_and_the_words(run, tmp_path):
    # A run is whole for others once the process that wrote it has ended.
    for job, words in ((AIM, (run, tmp_path)), (READ_AIM, (tmp_path,))):
        done = subprocess.run(
            [sys.executable, "-c", job, *map(str, words)],
            env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    [line] = [each for each in done.stdout.splitlines() if each.startswith("READ ")]
    name, steps, losses, curves, last = json.loads(line[5:])
    assert (name, steps) == ("one", list(range(1, 11)))
    assert [step for step, loss in zip(steps, losses, strict=True) if math.isnan(loss)] == [7]
    assert {"stayfinite/grad_norm", "stayfinite/vetoes"} <= set(curves)
    assert "bad-data-row" in last["last_autopsy"]


@pytest.mark.parametrize(("sink", "package"), [(MlflowSink, "mlflow"), (AimSink, "aim")])
def test_one_that_is_missing_names_the_line_that_installs_it(monkeypatch, sink, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{package}, which is not installed\n  fix: pip install {package}"):
        sink("somewhere")
