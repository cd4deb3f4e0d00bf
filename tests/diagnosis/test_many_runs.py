"""Many runs in one directory: those in which nothing happens are left alone, and still told of."""

import json

from planted_runs import write_lines
from stayfinite.diagnosis import watching
from stayfinite.diagnosis.watching import WatchedRuns

LINE = {
    "version": 1, "loss": 1.0, "grad_norm": 1.0, "lr": 1e-3, "loss_scale": None, "decision": "accept", "code": "finite",
}  # fmt: skip


def test_among_many_runs_a_quiet_one_rests_and_a_moving_one_is_read_at_once(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(watching, "MANY", 3)
    for number in range(5):
        (tmp_path / f"run-{number}").mkdir()
        write_lines(tmp_path / f"run-{number}/steps.jsonl", [LINE | {"step": step} for step in range(1, 5)])
    watched = WatchedRuns([tmp_path])
    assert watched.look()
    looks = dict.fromkeys((run.name for run in watched.runs), 0)
    for run in watched.runs:
        monkeypatch.setattr(run, "look", counting(run, looks))
    for second in range(60):
        clock[0] += 1.0
        with (tmp_path / "run-0/steps.jsonl").open("a") as file:
            file.write(json.dumps(LINE | {"step": 5 + second}) + "\n")
        watched.look()
    assert looks["run-0"] == 60
    assert 0 < looks["run-1"] < 10
    assert [status.step for status in watched.statuses()] == [64, 4, 4, 4, 4]


def counting(run, looks):
    plain = run.look

    def look(**options):
        looks[run.name] += 1
        return plain(**options)

    return look
