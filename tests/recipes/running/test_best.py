"""The best model so far: always whole on disk, recalled by a run that goes on."""

import json

import pytest

from stayfinite.recipes.running.records import Best


def saving(words):
    return lambda into: (into / "weights").write_text(words)


def test_only_a_better_one_replaces_the_best(tmp_path):
    best = Best(tmp_path, metric="bleu")
    assert best.judge(1, {"bleu": 10.0}, saving("one"))
    assert not best.judge(2, {"bleu": 9.0}, saving("two"))
    assert not best.judge(3, {"bleu": 10.0}, saving("three"))
    assert (best.directory / "weights").read_text() == "one"
    assert best.judge(4, {"bleu": 11.0}, saving("four"))
    assert (best.directory / "weights").read_text() == "four"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "evaluations.json"]


def test_the_lowest_may_be_the_best(tmp_path):
    best = Best(tmp_path, metric="loss", lowest=True)
    assert best.judge(1, {"loss": 3.0}, saving("one"))
    assert best.judge(2, {"loss": 2.0}, saving("two"))
    assert not best.judge(3, {"loss": 2.5}, saving("three"))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_not_finite_is_never_better(tmp_path, bad):
    best = Best(tmp_path, metric="bleu")
    best.judge(1, {"bleu": 0.0}, saving("one"))
    assert not best.judge(2, {"bleu": bad}, saving("two"))


def test_it_is_over_after_so_many_evaluations_in_vain(tmp_path):
    best = Best(tmp_path, metric="bleu", patience=2)
    over = []
    for step, value in enumerate([1.0, 3.0, 2.0, 2.5]):
        best.judge(step, {"bleu": value})
        over.append(best.over)
    assert over == [False, False, False, True]
    assert not Best(tmp_path, metric="bleu").over


def test_a_save_that_fails_leaves_the_best_one(tmp_path):
    best = Best(tmp_path, metric="bleu")
    best.judge(1, {"bleu": 1.0}, saving("one"))

    def fails(into):
        (into / "weights").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        best.judge(2, {"bleu": 2.0}, fails)
    assert (best.directory / "weights").read_text() == "one"
    assert best.judge(3, {"bleu": 3.0}, saving("three"))
    assert (best.directory / "weights").read_text() == "three"


def test_a_run_that_goes_on_recalls_what_it_had_seen_by_then(tmp_path):
    first = Best(tmp_path, metric="bleu", patience=2)
    for step in (10, 20, 30):
        first.judge(step, {"bleu": float(step)})
    again = Best(tmp_path, metric="bleu", patience=2)
    again.recall(20)
    assert [entry["step"] for entry in again.history] == [10, 20]
    assert again.knows(20)
    assert not again.knows(30)
    again.judge(30, {"bleu": 5.0})
    assert len(json.loads((tmp_path / "evaluations.json").read_text())["evaluations"]) == 3


def test_nothing_is_recalled_where_nothing_was_written(tmp_path):
    best = Best(tmp_path, metric="bleu")
    best.recall(5)
    assert best.history == []
