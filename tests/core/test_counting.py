"""Steps that a log counts anew in each epoch are counted on; steps of a run that was taken up again are not."""

from __future__ import annotations

from stayfinite.core.counting import counted_on
from stayfinite.core.series import RunSeries


def series(*points):
    run = RunSeries("train.log")
    for line, (epoch, step) in enumerate(points, start=1):
        run.add(line, step, loss=1.0, epoch=epoch)
    return run


def steps(run):
    return [point.step for point in run.points]


def test_each_epoch_goes_on_where_the_one_before_it_ended():
    run = series((0, 0), (0, 10), (0, 20), (1, 0), (1, 10), (2, 0), (2, 10), (2, 20))
    run.measure("eval_loss", 0.5, step=20, line=3)
    run.measure("eval_loss", 0.4, step=20, line=8)
    counted = counted_on(run)
    assert steps(counted) == [0, 10, 20, 30, 40, 50, 60, 70]
    assert counted.metrics["eval_loss"].steps == [20, 70]
    assert steps(run)[3] == 0


def test_what_only_rises_is_left_alone():
    for run in (series((0.1, 10), (0.2, 20), (1.1, 30)), series((None, 5), (None, 1)), series(), series((0, None))):
        assert counted_on(run) is run


def test_a_run_that_was_taken_up_again_goes_back():
    run = series((0, 100), (1, 200), (2, 300), (1, 210), (2, 310))
    assert counted_on(run) is run
