"""What the page is given: everything that a run says, in a shape that no file can break, and small."""

from __future__ import annotations

import base64
import json
import math

import pytest

from planted_runs import an_autopsy, an_incident, event, plant_layers, plant_run, write_lines
from stayfinite.core.curve import Spans
from stayfinite.guard.telling.showing import shown_run, shown_runs
from stayfinite.readers.runs.events import Steps
from stayfinite.readers.runs.reader import RunReader, read_layers
from stayfinite.report.page.data import _cause, page_data, run_data
from stayfinite.report.page.details import incident_data
from stayfinite.report.page.heat import BAD, NONE, heat_data
from stayfinite.report.page.html import page_html

NOTHING = {"verdict": "unknown", "findings": [], "trouble": [], "sources": []}


def test_a_refused_step_is_a_gap_and_a_mark(tmp_path):
    run = shown_run(plant_run(tmp_path))
    loss = run["series"]["loss"]
    assert loss["bad"] == [[40, 41, 2, "NaN"], [90, 90, 1, "NaN"]]
    assert 40 not in loss["x"]
    assert [(m["kind"], m["from"]) for m in run["marks"]] == [
        ("veto", 40), ("checkpoint", 40), ("veto", 41), ("checkpoint", 80), ("veto", 90),
    ]  # fmt: skip
    assert run["figures"][:2] == [["steps", "120"], ["refused", "3"]]


def test_a_proved_cause_is_verified_and_a_guess_is_not(tmp_path):
    run = shown_run(plant_run(tmp_path, incident=an_incident(), autopsy=an_autopsy()))
    first, *others = run["findings"]
    assert (first["cause"], first["verified"], first["by"]) == ("fp16-overflow", True, "bf16")
    assert first["evidence"] == ["mm in encoder.wo reaches 250,622 in fp16."]
    assert not any(finding["verified"] for finding in others)
    assert run["sentence"] == (
        "3 of 120 steps were refused before they could touch the weights. Cause: fp16-overflow (96%), proved by re-run."
    )


def test_a_directory_whose_run_lies_below_it_is_drawn_as_that_run(tmp_path):
    plant_run(tmp_path / "stayfinite", incident=an_incident(), autopsy=an_autopsy())
    run = shown_run(tmp_path, "output_dir")
    assert run["name"] == "output_dir"
    assert len(run["incidents"]) == 1
    assert run["sentence"].startswith("3 of 120 steps were refused before they could touch the weights. Cause: fp16")


def test_a_trainers_log_with_refused_steps_says_so_before_it_says_that_nothing_tells_why(tmp_path):
    rows = [{"loss": 3 - step / 20, "grad_norm": 1.0, "step": step, "epoch": step / 100} for step in range(1, 30)]
    rows[20] |= {"loss": math.nan, "grad_norm": math.nan, "stayfinite/refused_loss": math.nan, "stayfinite/vetoes": 1}
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows, "max_steps": 29}, indent=2))
    assert shown_run(tmp_path / "trainer_state.json")["sentence"].startswith("1 step was refused")


def test_a_healthy_run_is_called_so(tmp_path):
    run = shown_run(plant_run(tmp_path, vetoes=()))
    assert (run["verdict"], run["findings"]) == ("healthy", [])
    assert run["sentence"].startswith("Healthy: 120 steps, none refused; the last loss is 0.")


def plant_course(directory, decisions):
    """Steps by decision and code, with the event of each that was refused, and of the end."""
    directory.mkdir(exist_ok=True)
    steps = [
        {"version": 1, "step": step, "loss": 1.0 + 1.0 / step, "grad_norm": math.inf if code != "finite" else 1.0}
        | {"lr": 1e-3, "loss_scale": 2.0**20, "decision": decision, "code": code}
        for step, (decision, code) in enumerate(decisions, start=1)
    ]
    events = [event(each["decision"], each["step"], code=each["code"]) for each in steps if each["code"] != "finite"]
    end = "stopped" if decisions[-1][0] == "stop" else "closed"
    write_lines(directory / "steps.jsonl", steps)
    write_lines(directory / "events.jsonl", [*events, event(end, len(steps))])
    return directory


SEARCH, TAKEN = ("veto", "scale-search"), ("accept", "finite")
REFUSED, STOP = ("veto", "gradient-not-finite"), ("stop", "vetoes-in-a-row")


def test_a_loss_scale_that_was_looked_for_and_found_leaves_a_run_healthy(tmp_path):
    run = shown_run(plant_course(tmp_path, [SEARCH] * 14 + [TAKEN] * 60))
    assert run["verdict"] == "healthy"
    assert run["sentence"] == (
        "Healthy: 14 of 74 steps were refused while the loss scale was searched; the last loss is 1.014."
    )
    assert ["lowest loss scale", "1,048,576"] in run["figures"]


def test_a_stop_is_marked_once_and_a_run_of_nothing_but_refusals_says_so(tmp_path):
    run = shown_run(plant_course(tmp_path, [REFUSED] * 5 + [STOP]))
    assert [mark["from"] for mark in run["marks"] if mark["kind"] == "stop"] == [6]
    assert run["sentence"].startswith("Training stopped after 6 steps, all of them refused.")
    run = shown_run(plant_course(tmp_path, [TAKEN] + [REFUSED] * 5 + [STOP]))
    assert run["sentence"].startswith("Training stopped after 7 steps, 6 of them refused.")


def test_one_of_a_thing_is_not_many(tmp_path):
    (files,) = [table for table in shown_run(plant_course(tmp_path, [TAKEN]))["details"] if table["title"] == "Files"]
    assert files["rows"][1][1] == "json lines log, 1 line, 1 measurement"


def test_the_launch_is_told_in_words_whatever_stands_there(tmp_path):
    run = plant_run(tmp_path)
    for written, told in (("2026-11-15T19:39:27.653+01:00", "2026-11-15 18:39:27 UTC"), (7, "7"), ("9" * 80, None)):
        (run / "run.json").write_text(json.dumps({"version": 1, "launches": [{"time": written}]}))
        rows = next(table["rows"] for table in shown_run(run)["details"] if table["title"] == "Environment")
        assert dict(rows)["launched"] == told or len(dict(rows)["launched"]) == 40


def test_a_foreign_log_has_the_same_shape(tmp_path):
    state = {"log_history": [{"step": step, "loss": 5 / step, "learning_rate": 1e-4} for step in range(1, 40)]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    log = shown_run(tmp_path / "trainer_state.json")
    assert set(log) == set(shown_run(plant_run(tmp_path / "run")))
    assert log["series"]["loss"]["x"] == list(range(1, 40))
    assert log["note"] == ""


def test_another_programs_directory_is_read_as_its_logs(tmp_path):
    (tmp_path / "run.json").write_text('{"model": "x"}')
    (tmp_path / "train.log").write_text("".join(f"step {n} loss {5 / n:.4f}\n" for n in range(1, 60)))
    assert shown_run(tmp_path)["figures"][0] == ["measurements", "59"]


def test_a_step_that_another_program_left_out_is_called_skipped_and_not_refused(tmp_path):
    overflow = (
        "[INFO] [stage2.py:1628] [deepscale] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1"
    )
    (tmp_path / "train.log").write_text("".join(f"{overflow}\n  0%| {step}/24128\n" for step in range(98, 103)))
    assert {mark["kind"] for mark in shown_run(tmp_path / "train.log")["marks"]} == {"skip"}


def test_a_log_without_steps_says_so(tmp_path):
    (tmp_path / "train.log").write_text("".join(f"{{'loss': {5 / n:.3f}, 'epoch': {n / 10}}}\n" for n in range(1, 40)))
    assert "has no step numbers" in shown_run(tmp_path / "train.log")["note"]


def test_epochs_that_count_their_steps_anew_follow_one_another(tmp_path):
    lines = [
        f"epoch {epoch} step {step} loss {3 / (1 + epoch):.3f}\n" for epoch in range(3) for step in range(0, 50, 5)
    ]
    (tmp_path / "train.log").write_text("".join(lines))
    run = shown_run(tmp_path / "train.log")
    assert run["series"]["loss"]["x"] == list(range(0, 150, 5))
    assert run["note"].endswith("steps are counted on.")
    assert run["figures"][0] == ["measurements", "30"]


def trainer_lines(evaluations=()):
    """A Trainer's console: it names no steps, and prints an evaluation after every tenth line."""
    for place in range(1, 101):
        yield {"loss": round(2.5 * 0.975**place, 4), "grad_norm": 1.1, "learning_rate": 5e-5, "epoch": place / 10}
        if evaluations and not place % 10:
            yield {"eval_loss": evaluations[place // 10 - 1], "eval_bleu": 9.0 + place, "eval_runtime": 3.2}


def write_log(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return shown_run(path)


def test_an_evaluation_that_names_no_step_lies_where_it_was_made(tmp_path):
    run = write_log(tmp_path / "train.log", trainer_lines([2.0 - place / 10 for place in range(10)]))
    assert run["series"]["eval_loss"]["x"] == list(range(9, 100, 10))
    assert run["series"]["signal: eval_bleu"]["x"] == list(range(9, 100, 10))
    assert not any("runtime" in name for name in run["series"])
    assert "Overfitting" not in run["sentence"]


def test_overfitting_is_said_where_the_evaluated_loss_rises_alone(tmp_path):
    run = write_log(tmp_path / "train.log", trainer_lines([1.9, 1.7, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.2, 2.3]))
    assert run["sentence"].startswith("Overfitting since measurement 29: eval loss rose from 1.6 to 2.3 while")
    assert run["health"]["word"] == "warning"
    assert ["best eval loss", "1.6 at measurement 29"] in run["figures"]


def test_a_loss_of_0_that_stands_for_nan_is_missing(tmp_path):
    lines = [{"loss": 2.0 - place / 100, "grad_norm": 1.1, "epoch": place / 10} for place in range(20)]
    lines += [{"loss": 0.0, "grad_norm": math.nan, "epoch": place / 10} for place in range(20, 30)]
    run = write_log(tmp_path / "train.log", lines)
    assert run["series"]["loss"]["bad"] == [[20, 29, 10, "NaN"]]
    assert {"last loss": "NaN", "lowest loss": "1.81"}.items() <= dict(run["figures"]).items()
    free = [line | {"grad_norm": 0.5} for line in lines]  # GRPO's loss is 0 and means it
    assert dict(write_log(tmp_path / "grpo.log", free)["figures"])["lowest loss"] == "0"


def test_a_log_of_a_resumed_run_has_each_step_once(tmp_path):
    steps = [*range(1, 301), *range(201, 501)]
    (tmp_path / "train.log").write_text("".join(f"step {step} loss {1 + 3 / step:.4f}\n" for step in steps))
    run = shown_run(tmp_path / "train.log")
    assert run["series"]["loss"]["x"] == list(range(1, 501))
    assert run["figures"][0] == ["measurements", "500"]
    assert "100 steps were measured twice" in run["note"]


def test_a_resumed_run_has_each_step_once_and_one_restart(tmp_path):
    directory = plant_run(tmp_path)
    (tmp_path / "steps.jsonl").write_text("")
    write_lines(tmp_path / "steps.jsonl", [a_step(step) for step in (*range(1, 131), *range(101, 201))])
    write_lines(tmp_path / "events.jsonl", [event("start", 0), event("resume", 100), event("restart", 100)])
    run = shown_run(directory)
    assert run["series"]["loss"]["x"] == list(range(1, 201))
    assert run["figures"][0] == ["steps", "200"]
    assert [(mark["kind"], mark["count"]) for mark in run["marks"]] == [("restart", 1)]


def test_a_line_without_a_step_is_no_resume(tmp_path):
    lines = [f"step {step} loss {1 + 3 / step:.4f}\nloss {1 + 3 / step:.4f} lr 1e-4\n" for step in range(100, 160)]
    (tmp_path / "train.log").write_text("".join(lines))
    run = shown_run(tmp_path / "train.log")
    assert (run["note"], min(run["series"]["loss"]["x"])) == ("", 100)


def test_a_run_can_be_drawn_over_time_by_its_events(tmp_path):
    directory = plant_run(tmp_path)
    at = [(step, f"2026-11-15T10:{minute:02}:00+00:00") for step, minute in ((0, 0), (100, 10), (100, 40), (200, 50))]
    write_lines(tmp_path / "events.jsonl", [event("checkpoint", step) | {"time": time} for step, time in at])
    assert shown_run(directory)["axes"] == {"time": [[0, 0], [100, 2400], [200, 3000]]}


def test_a_log_that_counts_tokens_can_be_drawn_over_them(tmp_path):
    lines = [{"loss": 3 / step, "step": step, "num_input_tokens_seen": 4096 * step} for step in range(1, 40)]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": lines}))
    run = shown_run(state)
    assert run["axes"]["tokens"][0] == [1, 4096]
    assert run["axes"]["tokens"][-1] == [39, 39 * 4096]
    assert not any("tokens" in name for name in run["series"])


def a_step(step):
    return {"version": 1, "step": step, "loss": 1 + 3 / step, "grad_norm": 1.0, "lr": 1e-4, "decision": "accept"}


def test_the_looks_of_every_launch_are_on_the_heat_map(tmp_path):
    directory = plant_run(tmp_path)
    plant_layers(tmp_path / "layers-1.npz", ("a.weight", "b.weight"), looks=6)
    first = read_layers(tmp_path / "layers-1.npz").steps
    (tmp_path / "layers.npz").write_bytes((tmp_path / "layers-1.npz").read_bytes())
    assert shown_run(directory)["layers"]["steps"] == list(first)  # each look once
    plant_layers(tmp_path / "layers.npz", ("a.weight", "b.weight"), looks=6, start=first[3])
    assert shown_run(directory)["layers"]["steps"] == [*first[:4], *(step + first[3] for step in first)]


def test_what_a_recipe_evaluated_is_on_the_page(tmp_path):
    directory = plant_run(tmp_path)
    entries = [{"step": 20 * place, "value": -3.0, "loss": 3.0, "bleu": 10.0 + place} for place in range(1, 5)]
    (tmp_path / "evaluations.json").write_text(json.dumps({"version": 1, "evaluations": entries}))
    run = shown_run(directory)
    assert run["series"]["eval_loss"] == {"x": [20, 40, 60, 80], "y": [3, 3, 3, 3], "bad": []}
    assert run["series"]["signal: bleu"]["y"] == [11, 12, 13, 14]
    assert ["last BLEU", "14"] in run["figures"]


def test_the_title_says_how_many_more_runs_there_are(tmp_path):
    runs = shown_runs([plant_run(tmp_path / name, vetoes=()) for name in "abcdef"])
    assert page_data(runs)["title"] == "a, b, c, d and 2 more"
    assert page_data(runs[:4])["title"] == "a, b, c, d"


def plant_failure(directory, reason, error, *more):
    run = plant_run(directory, vetoes=())
    with (run / "events.jsonl").open("a") as file:
        for record in (event("restart", 0), event("failed", 120, reason=reason, error=error), *more):
            file.write(json.dumps(record) + "\n")
    return run


def test_a_loop_that_failed_says_with_what_and_is_not_called_healthy(tmp_path):
    run = shown_run(
        plant_failure(tmp_path, "the training loop ended with RuntimeError", "disk <b>full</b>\n at 3 a.m.")
    )
    assert run["verdict"] != "healthy"
    assert run["sentence"].startswith(
        "The training loop failed after 120 steps: RuntimeError: disk <b>full</b> at 3 a.m. "
    )
    assert run["trouble"] == ["the run crashed"]


def test_a_loop_that_somebody_ended_is_no_failure(tmp_path):
    run = shown_run(plant_failure(tmp_path, "the training loop ended with KeyboardInterrupt", ""))
    assert (run["verdict"], run["trouble"]) == ("healthy", [])
    assert run["sentence"].startswith("Training was interrupted after 120 steps; the last loss is 0.")


def test_a_failure_that_was_taken_up_again_is_past(tmp_path):
    again = (event("restart", 120), event("closed", 120, reason="the guard is closed"))
    run = shown_run(plant_failure(tmp_path, "the training loop ended with OSError", "no space left", *again))
    assert (run["verdict"], run["trouble"]) == ("healthy", [])
    assert run["sentence"].startswith("Healthy: 120 steps")


def test_a_log_that_ends_in_a_crash_says_so(tmp_path):
    (tmp_path / "train.log").write_text(
        "step 1 loss 2.5\nstep 2 loss 2.4\nstep 3 loss 2.3\nRuntimeError: disk on fire\n"
    )
    run = shown_run(tmp_path / "train.log")
    assert run["sentence"] == "The run crashed. Cause unknown."


def test_a_guess_that_is_mostly_wrong_stays_out_of_the_headline(tmp_path):
    (tmp_path / "train.log").write_text("".join(f"step {n} loss {'nan' if n > 71 else 2.0}\n" for n in range(1, 150)))
    assert shown_run(tmp_path / "train.log")["sentence"].endswith(" Cause unknown.")


@pytest.mark.parametrize(("sure", "words"), [(0.9, "Cause: a"), (0.5, "Likeliest cause: a"), (0.25, "Perhaps a")])
def test_a_headline_is_as_sure_as_its_cause(sure, words):
    finding = {"cause": "a", "severity": "error", "confidence": sure, "verified": False}
    assert _cause([finding], {}) == f"{words} ({sure:.0%})."


def test_where_nothing_tells_why_no_cause_is_named(tmp_path):
    run = shown_run(plant_run(tmp_path, vetoes=(40,)))
    assert run["sentence"] == (
        "1 of 120 steps was refused before it could touch the weights. Nothing read explains it."
    )


def test_runs_that_are_called_alike_are_told_apart(tmp_path):
    runs = shown_runs([plant_run(tmp_path / "a" / "run"), plant_run(tmp_path / "b" / "run")])
    assert [run["name"].endswith(end) for run, end in zip(runs, ("a/run", "b/run"), strict=True)] == [True, True]
    assert [run["id"] for run in page_data(runs)["runs"]] == ["r0", "r1"]


def test_a_hundred_thousand_steps_stay_under_a_megabyte(tmp_path):
    run = RunReader(plant_run(tmp_path, names=tuple(f"block.{n}.weight" for n in range(300)), looks=300))
    run.refresh()
    run.steps = Steps()
    for step in range(1, 100_001):
        bad = step % 50 == 0
        value = math.nan if bad else 1 + (step * 7919 % 1000) / 333.3
        run.steps.add(
            {"step": step, "loss": value, "grad_norm": value * 1.7, "lr": value * 1e-5, "loss_scale": value * 3}
        )
        if bad:
            spans = run.events.marks.setdefault("veto", Spans(400))
            spans.add("veto", step, text="loss is nan; all 39 gradients are NaN or inf " * 4)
    data = page_data([run_data(run, NOTHING)])
    assert len(page_html(data).encode()) < 1_000_000
    assert sum(mark["count"] for mark in data["runs"][0]["marks"] if mark["kind"] == "veto") == 2_003
    assert sum(span[2] for span in data["runs"][0]["series"]["loss"]["bad"]) == 2_000


def test_whatever_an_incident_holds_its_shape_is_the_same():
    odd = [None, 5, "x", [], {}, [5, None], {"a": {"b": math.nan}}, math.inf]
    shape = set(incident_data({"name": "0001", "record": an_incident(), "autopsy": an_autopsy()}))
    for value in odd:
        for part in an_incident() | an_autopsy():
            record, autopsy = an_incident() | {part: value}, an_autopsy() | {part: value}
            told = incident_data({"name": "0001", "record": record, "autopsy": autopsy})
            assert set(told) == shape
            json.dumps(told, allow_nan=False)
        json.dumps(incident_data({"name": value, "record": value, "autopsy": value}), allow_nan=False)


def test_rows_are_shown_with_the_guilty_ones_first():
    rows = [{"row": row, "text": f"text {row}"} for row in range(5)] + [{"row": "x"}, 7]
    told = incident_data({"record": an_incident(rows=rows), "autopsy": an_autopsy(rows=[3])})
    assert [(row["row"], row["guilty"]) for row in told["decoded"]][:2] == [(3, True), (0, False)]


def test_the_heat_map_tells_nothing_from_nought_from_not_finite(tmp_path):
    plant_layers(tmp_path / "layers.npz", ("a.weight", "b.weight", "silent.weight"), looks=6, broken=2)
    heat = heat_data(read_layers(tmp_path / "layers.npz"))
    cells = base64.b64decode(heat["fields"]["norm"]["cells"])
    rows = [list(cells[start : start + 6]) for start in (0, 6, 12)]
    assert rows[0] == sorted(rows[0])
    assert rows[0][0] == 2  # the least of all
    assert rows[1][4:] == [BAD, BAD]
    assert set(rows[2]) == {NONE}
    assert heat["worst"][0]["name"] == "b.weight"
    assert heat["worst"][0]["first_broken"] == heat["steps"][4]


def test_many_layers_are_taken_together_by_module_and_the_worst_of_each_is_shown(tmp_path):
    names = tuple(f"block.{block}.part.{part}.weight" for block in range(50) for part in range(10))
    plant_layers(tmp_path / "layers.npz", names, looks=500, broken=1)
    heat = heat_data(read_layers(tmp_path / "layers.npz"))
    assert heat["grouped"]
    assert heat["names"] == [f"block.{block}.part" for block in range(50)]
    assert len(heat["steps"]) <= 240
    assert heat["worst"][0]["name"] == names[1]
