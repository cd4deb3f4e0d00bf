"""The translation program as a whole, on a model of a few thousand weights."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
import torch
from safetensors.torch import load_file

from recipe_job import quiet
from stayfinite.autopsy.incidents.rebuild import replay
from stayfinite.cli import main
from stayfinite.errors import TrainingDiverged, UsageError
from stayfinite.precision.applying import applied_to
from stayfinite.precision.plan import PrecisionPlan
from stayfinite.recipes import translate
from stayfinite.recipes.running import timing
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.translate import Translate, build, refuse_place, train
from tiny_translations import byte_model, quick_settings, write_pairs

pytestmark = pytest.mark.usefixtures("one_thread")


def recorded(run, name):
    return [json.loads(line)[name] for line in (run / "steps.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two epochs, and what it said."""
    folder = tmp_path_factory.mktemp("trained")
    said = []
    result = train(quick_settings(folder, check="stop", ema=0.5, accumulation=2, prefix="to English: "), said.append)
    return folder / "run", result, said


def test_everything_that_a_person_needs_is_in_the_directory(trained):
    run, result, _ = trained
    names = {path.name for path in run.iterdir()}
    assert {"run.json", "steps.jsonl", "events.jsonl", "check.json", "result.json", "evaluations.json", "best"} <= names
    record = json.loads((run / "run.json").read_text())
    assert (record["recipe"], record["steps"]) == ("translate", result.steps)
    outcome = json.loads((run / "result.json").read_text())
    assert outcome["steps"] == result.steps == len((run / "steps.jsonl").read_text().splitlines())
    assert outcome["scores"]["rows"] == result.scores.rows
    assert [entry["step"] for entry in outcome["evaluations"]] == [result.steps // 2, result.steps]
    assert json.loads((run / "best" / "translate.json").read_text())["prefix"] == "to English: "


def test_the_loss_falls_and_the_schedule_ends_where_the_steps_do(trained):
    run, result, _ = trained
    assert result.last_loss < result.first_loss
    rates = recorded(run, "lr")
    assert 0 < rates[-1] < 0.3 * max(rates)


def test_it_says_what_it_does(trained):
    _, _, said = trained
    text = "\n".join(said)
    for words in (
        "pairs.csv: CSV, ", "rows: source = source", "cut for more than 24 and 24 tokens: ", "computing in fp32 on cpu",
        "check: ready to launch", "epoch 1: BLEU", "    reference  ", "Saved the best model to",
    ):  # fmt: skip
        assert words in text, words


def test_the_run_can_be_built_again_from_its_directory_alone(trained, tmp_path):
    run = shutil.copytree(trained[0], tmp_path / "elsewhere")
    model, forward = build(run)
    assert not model.load_state_dict(load_file(run / "best" / "model.safetensors"), strict=False).unexpected_keys
    batch = {
        "input_ids": torch.tensor([[50, 60, 1]]), "attention_mask": torch.ones(1, 3).long(),
        "labels": torch.tensor([[70, 1, -100]]),
    }  # fmt: skip
    theirs = model(**batch).loss
    assert torch.isclose(forward(batch), theirs)


def test_the_check_and_the_evaluations_change_nothing_of_the_training(trained, tmp_path):
    shutil.copytree(trained[0].parent / "model", tmp_path / "model")
    shutil.copy(trained[0].parent / "pairs.csv", tmp_path)
    train(quick_settings(tmp_path, check="off", eval_epochs=9, ema=0.5, accumulation=2, prefix="to English: "), quiet)
    assert recorded(tmp_path / "run", "loss") == recorded(trained[0], "loss")


def test_a_batch_that_gives_nan_is_explained_with_its_texts_and_can_be_replayed(tmp_path, monkeypatch):
    settings = quick_settings(tmp_path, epochs=1, eval_rows=1)
    healthy = translate.loss_of
    mark = ord("Q") + 3

    def planted(model, smoothing):
        compute = healthy(model, smoothing)

        def loss(batch):
            found = compute(batch)
            return found * float("nan") if (batch["input_ids"] == mark).any() else found

        return loss

    write_pairs(tmp_path / "pairs.csv", [*(Pair(f"word {n}", f"other {n}") for n in range(40)), Pair("Q word", "bad")])
    monkeypatch.setattr(translate, "loss_of", planted)
    train(settings, quiet)
    incident = tmp_path / "run" / "incidents" / "0001"
    rows = json.loads((incident / "incident.json").read_text())["rows"]
    assert "Q word => bad" in str(rows)
    # The same model, batch and random numbers, from the run directory alone.
    found, _ = replay(incident, build=None)
    assert found["cause"] == "loss-formula-singularity"


def test_a_training_without_one_finite_step_is_no_success_and_the_command_replays_it(tmp_path, monkeypatch, capsys):
    settings = quick_settings(tmp_path, max_steps=2, epochs=None, eval_rows=1, samples=0)
    healthy = translate.loss_of
    monkeypatch.setattr(
        translate, "loss_of", lambda model, smoothing: lambda batch: healthy(model, smoothing)(batch) * float("nan")
    )
    with pytest.raises(TrainingDiverged, match="all 2 steps had a NaN or inf loss"):
        train(settings, quiet)
    assert not (tmp_path / "run" / "result.json").exists()
    assert main(["replay", str(tmp_path / "run" / "incidents" / "0001"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["cause"] == "loss-formula-singularity"


def test_the_result_has_the_seconds_of_all_processes_and_a_finished_run_says_so(tmp_path):
    short = {"epochs": None, "eval_rows": 1, "samples": 0, "check": "off"}
    train(quick_settings(tmp_path, max_steps=2, **short), quiet)
    events = tmp_path / "run" / "events.jsonl"
    began, *rest = events.read_text().splitlines()
    earlier = datetime.fromisoformat(json.loads(began)["time"]) - timedelta(hours=1)
    began = json.dumps(json.loads(began) | {"time": earlier.isoformat()})
    events.write_text("\n".join([began, *rest]) + "\n")
    longer = train(quick_settings(tmp_path, max_steps=3, **short), quiet)
    assert 3600 < longer.seconds < 3900
    assert json.loads((tmp_path / "run" / "result.json").read_text())["seconds"] == round(longer.seconds, 1)
    said = []
    again = train(quick_settings(tmp_path, max_steps=3, **short), said.append)
    assert said[0] == f"the run in {tmp_path / 'run'} is finished after 3 steps. To continue, raise --max-steps"
    assert not any("resum" in line for line in said)
    assert again.seconds == pytest.approx(longer.seconds, abs=2)


def test_early_stopping_stops(tmp_path):
    settings = quick_settings(tmp_path, epochs=30, patience=1, learning_rate=1e-9, eval_rows=1, samples=0)
    result = train(settings, quiet)
    assert len(json.loads((tmp_path / "run" / "evaluations.json").read_text())["evaluations"]) == 2
    assert result.steps < 20


class Ticking(timing.TimedSchedule):
    """Time passes by 10 ms whenever somebody asks for it, whatever the machine is doing."""

    def __init__(self, *arguments, **options):
        ticks = count()
        super().__init__(*arguments, **(options | {"clock": lambda: next(ticks) / 100}))


@pytest.mark.slow
def test_so_many_steps_and_so_many_minutes_are_kept(tmp_path, monkeypatch):
    assert train(quick_settings(tmp_path, epochs=None, max_steps=3, eval_rows=1), quiet).steps == 3
    monkeypatch.setattr(timing, "TimedSchedule", Ticking)
    timed = quick_settings(tmp_path, epochs=None, minutes=0.02, eval_rows=1, output_dir=str(tmp_path / "timed"))
    result = train(timed, quiet)
    over = datetime.now(UTC)
    rates = recorded(tmp_path / "timed", "lr")
    assert result.steps > 3
    assert rates[-1] < max(rates) / 2
    plan = json.loads((tmp_path / "timed" / "run.json").read_text())
    assert (plan["minutes"], "steps" in plan) == (0.02, False)
    assert datetime.fromisoformat(plan["ends"]) <= over + timedelta(seconds=1.2)
    again = train(timed, quiet)
    assert again.steps == result.steps  # the time was used up: a process that goes on trains no further


def test_a_run_by_a_precision_plan_keeps_it_and_is_built_again_with_it(tmp_path):
    said = []
    train(quick_settings(tmp_path, epochs=None, max_steps=2, eval_rows=1, precision="plan"), said.append)
    assert any(line.startswith("computing with a precision plan: ") for line in said)
    model, _ = build(tmp_path / "run")
    assert applied_to(model).assignment == PrecisionPlan.load(tmp_path / "run" / "precision.json").assignment


def test_a_run_that_is_over_and_is_scored_again_keeps_the_time_of_its_training(tmp_path):
    settings = quick_settings(tmp_path, epochs=1, eval_rows=1)
    records = []
    for beams in (1, 2):
        train(replace(settings, beams=beams), quiet)
        records.append(json.loads((tmp_path / "run" / "result.json").read_text()))
    first, again = ({name: record[name] for name in ("steps", "seconds", "tokens_per_second")} for record in records)
    assert first == again
    assert again["tokens_per_second"] > 0


def test_token_budgets_plan_as_many_steps_as_are_taken(tmp_path):
    result = train(quick_settings(tmp_path, batch_tokens=200, epochs=3, eval_epochs=9, eval_rows=1), quiet)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["steps"] == result.steps


def test_ranks_that_cannot_find_each_other_are_refused_before_they_wait(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")  # and nothing that would say where the others are
    with pytest.raises(UsageError, match=r"means 2 ranks, but RANK is not set(?s:.)*torchrun --nproc-per-node 2"):
        train(quick_settings(tmp_path), quiet)
    assert not (tmp_path / "run").exists()


def test_another_training_in_the_same_directory_is_refused(tmp_path):
    train(quick_settings(tmp_path, epochs=1, eval_rows=1), quiet)
    with pytest.raises(UsageError, match="holds a run with other settings: batch_size 8 -> 4"):
        train(quick_settings(tmp_path, epochs=1, batch_size=4), quiet)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 0.0}, "--learning-rate 0.0"),
        ({"epochs": 0}, "--epochs 0"),
        ({"label_smoothing": 1.0}, "--label-smoothing 1.0"),
        ({"max_target_length": 1}, "--max-target-length 1: expected a number of at least 4"),
        ({"train": ("nowhere.csv",)}, "nowhere.csv: no such file"),
        ({"train": (), "val": ("a.csv",)}, "--val without --train"),
        ({"source": "nope"}, "no column 'nope'"),
        ({"device": "abacus"}, "--device abacus"),
        ({"logging_steps": 0}, "--logging-steps 0: expected a number of at least 1"),
        ({"output_dir": __file__}, "--output-dir .* is a file"),
        ({"output_dir": f"{__file__}/run"}, "--output-dir .* is a file"),
        ({"model": "./nowhere", "tokenizer": None}, r"cannot load './nowhere'(.|\n)*one of tiny, small"),
        ({"too_long": "drop", "max_source_length": 4, "max_target_length": 4}, "every pair exceeds"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path, changes, words):
    with pytest.raises(UsageError, match=words):
        train(quick_settings(tmp_path, **changes), quiet)
    assert not (tmp_path / "run").exists()


def test_the_usual_settings_are_those_that_the_reports_converged_on():
    own = translate._resolved(Translate(train=("a.csv",), model="google/byt5-small"))
    assert (own.learning_rate, own.warmup_ratio, own.weight_decay) == (1e-4, 0.1, 0.01)
    assert (own.max_source_length, own.max_target_length, own.batch_size, own.accumulation) == (256, 256, 4, 4)
    assert (own.epochs, own.gradient_checkpointing) == (10, True)


@pytest.mark.parametrize(
    ("asked", "rates", "rate"),
    [
        ({}, "relative", 0.02),
        ({"learning_rate": 3e-4}, "same", 3e-4),
        ({"rates": "relative", "learning_rate": 0.05}, "relative", 0.05),
        ({"rates": "same"}, "same", 1e-4),
        ({"model": "google/byt5-small"}, "same", 1e-4),
    ],
)
def test_fresh_weights_get_rates_of_their_own_unless_a_rate_is_asked_for(asked, rates, rate):
    resolved = translate._resolved(Translate(train=("a.csv",), **asked))
    assert (resolved.rates, resolved.learning_rate) == (rates, rate)


def test_a_cut_of_much_is_a_warning(tmp_path):
    said = []
    train(quick_settings(tmp_path, epochs=1, max_source_length=6, eval_rows=1), said.append)
    text = "\n".join(said)
    assert "warning: that is a lot" in text
    assert "--max-source-length" in text


def test_bytes_can_be_read_by_a_model_that_is_built_here(tmp_path):
    byte_model(tmp_path / "model")
    settings = quick_settings(tmp_path, model="tiny", tokenizer="bytes", max_steps=2, eval_rows=1)
    write_pairs(tmp_path / "pairs.csv", [Pair(f"w{n}", f"v{n}") for n in range(20)])
    assert train(settings, quiet).steps == 2


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"graphs": True, "gradient_checkpointing": False, "device": "cpu"}, "--graphs needs a CUDA device"),
        ({"graphs": True, "device": "cpu"}, "--graphs with gradient checkpointing"),
        ({"graphs": True, "gradient_checkpointing": False, "compile": True}, "--graphs with --compile"),
    ],
)
def test_graphs_are_refused_where_there_can_be_none_before_anything_is_written(tmp_path, flags, reason):
    with pytest.raises(UsageError, match=reason):
        train(Translate(output_dir=str(tmp_path / "run"), **flags))
    assert not (tmp_path / "run").exists()


def test_graphs_on_several_ranks_are_refused_in_words():
    with pytest.raises(UsageError, match="--graphs does not work on 2 ranks"):
        refuse_place(Translate(graphs=True), Place(device=torch.device("cuda", 0), count=2))
