"""Real ranks: the one that does not arrive is named with its line before the time-out; look-alikes are left alone."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from stage import Played, play
from stayfinite.guard.telling.showing import shown_run

pytestmark = pytest.mark.slow  # ranks that are waited for, on purpose

HEALTHY = [("ddp", "none"), ("ddp", "first"), ("ddp", "evaluate"), ("plain", "evaluate"), ("plain", "save")]
SLOW = ("ddp", "slow")
STALLED = [("ddp", "hang"), ("plain", "hang"), ("ddp", "stopped")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stalls")


@pytest.fixture(scope="module")
def played(folder: Path) -> dict[str, Played]:
    acts = {f"{kind}-{act}": (kind, act, folder / f"{kind}-{act}") for kind, act in [*STALLED, *HEALTHY, SLOW]}
    for *_, place in acts.values():
        place.mkdir()
    return play("ranks.stall_job", acts, folder / "stage", ranks=2)


def events(place: Path, *names: str) -> list[dict[str, Any]]:
    found = []
    for path in sorted(place.glob("events*.jsonl")):
        found += [json.loads(line) for line in path.read_text().splitlines()]
    return [each for each in found if each["event"] in names]


@pytest.mark.parametrize(("kind", "act"), STALLED)
def test_a_rank_that_does_not_arrive_is_named_and_all_stacks_are_kept(played, folder, kind, act):
    played[f"{kind}-{act}"].check()
    place = folder / f"{kind}-{act}"
    (stall,) = events(place, "stall")
    assert (stall["step"], stall["missing_ranks"], stall["hosts"]) == (8, [1], [socket.gethostname()])
    stacks = (place / stall["stacks"]).read_text()
    assert "guard.step(" in stacks, "rank 0 waits in the guard, or in backward"
    if act == "hang":
        assert stall["kind"] == "hung"
        assert "`time.sleep(LONG)`" in stall["reason"]
        assert "in stuck_loader" in stacks
        assert stacks.index("rank 1") < stacks.index("rank 0"), "the rank that is missing comes first"
    else:
        assert stall["kind"] == "silent"
        assert "is stopped" in stall["reason"]
        assert "no answer: rank 1" in stacks
    (over,) = events(place, "stall-over")
    assert over["seconds"] > stall["waited"]
    assert not list((place / ".stacks").glob("*.json")), "answers are taken back when training goes on"


@pytest.mark.parametrize(("kind", "act"), HEALTHY)
def test_what_only_looks_like_a_stall_is_left_alone(played, folder, kind, act):
    played[f"{kind}-{act}"].check()
    place = folder / f"{kind}-{act}"
    assert not events(place, "stall", "stall-over")
    assert not list(place.glob("stacks-*"))
    assert (place / "weights").read_text() == (folder / f"{kind}-hang" / "weights").read_text()


def test_the_slowest_rank_is_found_with_its_share_of_a_step(played, folder):
    played["ddp-slow"].check()
    place = folder / "ddp-slow"
    (slowest,) = events(place, "slowest-rank")
    assert (slowest["step"], slowest["slowest_rank"], slowest["host"]) == (100, 1, socket.gethostname())
    assert 0.3 < slowest["share"] <= 1
    assert slowest["mean_share"] < slowest["share"]
    assert slowest["step_seconds"] > 0.02
    run = shown_run(place)
    ranks = next(table["rows"] for table in run["details"] if table["title"] == "Ranks")
    assert ["slowest rank", f"1 ({socket.gethostname()})"] in ranks
    assert any(name == "slowest rank" for name, _ in run["figures"])
    assert not events(place, "stall")
