"""``stayfinite hardware``: which machine is suspect, over runs, restarts and ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stayfinite.cli import main

A, B = {"host": "node1", "device": "cuda:0 (H100, aa)"}, {"host": "node2", "device": "cuda:0 (H100, bb)"}


def write(run: Path, launches: list[list[dict[str, str]]], events: dict[int, list[dict[str, Any]]]) -> None:
    run.mkdir(parents=True)
    times = [f"2026-01-0{day}T00:00:00+00:00" for day in range(1, 9)]
    record = {"launches": [{"time": time, "ranks": ranks} for time, ranks in zip(times, launches, strict=False)]}
    (run / "run.json").write_text(json.dumps(record))
    (run / "events.jsonl").write_text("")
    for rank, told in events.items():
        name = "events.jsonl" if rank == 0 else f"events-rank{rank:05d}.jsonl"
        lines = [
            {"time": f"2026-01-0{each.pop('day', 1)}T01:00:00+00:00", "rank": rank, "step": 5} | each for each in told
        ]
        (run / name).write_text("".join(json.dumps(line) + "\n" for line in lines) + "{cut off")


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    machines = json.loads(capsys.readouterr().out)["machines"]
    return {each["host"]: each for each in machines}


def mismatch(place: dict[str, str], kind: str = "transient", **more: Any) -> dict[str, Any]:
    return {"event": "replay-mismatch", "kind": kind, "replayed": 4, **place, **more}


def replays(place: dict[str, str], count: int = 10, **more: Any) -> dict[str, Any]:
    return {"event": "replays", "replayed": count, "mismatches": 0, **place, **more}


def test_one_mismatch_each_in_two_launches_adds_up_to_a_suspect_though_the_rank_was_another(tmp_path, capsys):
    write(
        tmp_path / "runs/first",
        [[A, B], [B, A]],
        {0: [replays(A), mismatch(B, day=2), replays(B, day=2)], 1: [mismatch(B), replays(A, day=2)]},
    )
    assert main(["hardware", str(tmp_path / "runs"), "--json"]) == 1
    seen = told(capsys)
    assert (seen["node2"]["verdict"], seen["node2"]["transient"], seen["node2"]["ranks"]) == ("suspect", 2, [0, 1])
    assert (seen["node2"]["launches"], seen["node2"]["replayed"]) == (2, 4 + 10)
    assert (seen["node1"]["verdict"], seen["node1"]["replayed"]) == ("clear", 20)


@pytest.mark.parametrize(
    ("events", "verdict", "code"),
    [
        ([mismatch(A, "persistent")], "suspect", 1),
        ([mismatch(A)], "watch", 0),
        ([{"event": "replay-suspect", **A}], "watch", 0),
        ([replays(A)], "clear", 0),
        ([], "unknown", 0),
    ],
)
def test_what_is_thought_of_a_machine_follows_from_what_was_seen(tmp_path, capsys, events, verdict, code):
    write(tmp_path / "run", [[A]], {0: events})
    assert main(["hardware", str(tmp_path / "run"), "--json"]) == code
    assert told(capsys)["node1"]["verdict"] == verdict


def test_nan_that_begins_on_one_machine_wherever_the_ranks_are_is_worth_watching(tmp_path, capsys):
    def veto(*ranks: int, day: int) -> dict[str, Any]:
        return {"event": "veto", "code": "loss-not-finite", "bad_ranks": list(ranks), "day": day}

    write(tmp_path / "one", [[A, B], [B, A]], {0: [veto(1, day=1), veto(1, day=1), veto(0, day=2)]})
    assert main(["hardware", str(tmp_path), "--json"]) == 0
    assert [(each["bad_steps"], each["verdict"]) for each in told(capsys).values()] == [(3, "watch"), (0, "unknown")]
    # A look-alike: bad data comes round to every machine.
    write(tmp_path / "two", [[A, B]], {0: [veto(0, day=1), veto(0, day=1), veto(1, day=1), veto(1, day=1)]})
    main(["hardware", str(tmp_path), "--json"])
    assert {each["verdict"] for each in told(capsys).values()} == {"unknown"}


def test_the_words_say_what_to_do(tmp_path, capsys):
    write(tmp_path / "run", [[A, B]], {0: [replays(A)], 1: [mismatch(B, "persistent")]})
    assert main(["hardware", str(tmp_path / "run")]) == 1
    out = capsys.readouterr().out
    assert "Take node2 cuda:0 (H100, bb) out of service" in out
    assert main(["hardware", str(tmp_path / "nothing")]) == 2
    assert "no run directory" in capsys.readouterr().err
