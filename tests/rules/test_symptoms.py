"""What the numbers show, and what they only seem to show."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stayfinite.core.series import RunSeries
from stayfinite.rules.number_shapes import diverges, swings
from stayfinite.rules.run_symptoms import symptoms_of


def series(*points, **metrics):
    run = RunSeries("train.log")
    for number, point in enumerate(points, start=1):
        run.add(number, step=number, **point)
    for name, values in metrics.items():
        for line, value in enumerate(values, start=1):
            run.measure(name, value, line=line)
    return symptoms_of([run])


def losses(*values):
    return [{"loss": value} for value in values]


def test_a_falling_loss_is_healthy():
    assert series(*losses(3, 2.5, 2.2, 2.0, 1.9)).healthy


def test_measurements_that_end_in_nan_are_not_healthy_because_none_of_them_is_called_a_loss():
    assert not series(total=[4.0, 3.5, math.nan, math.nan]).healthy
    assert series(total=[4.0, 3.5, 3.2, 3.0]).healthy
    assert series(total=[4.0, 3.5, 3.2, 3.0], recall_of_a_rare_class=[math.nan, 0.4, 0.5, math.nan]).healthy
    assert series(*losses(3, 2.5, 2.2, 2.0), roc_auc=[math.nan, math.nan, math.nan]).healthy


@pytest.mark.parametrize(
    ("first", "from_start"),
    [
        ({"step": 1}, True),
        ({"step": 92261}, False),
        ({"step": 50, "epoch": 0.97}, False),
        ({"step": 50, "epoch": 0.02}, True),
    ],
)
def test_a_log_that_begins_late_says_nothing_bad_of_the_start(first, from_start):
    run = RunSeries("train.log")
    for line in range(1, 4):
        run.add(line, loss=0.0, grad_norm=math.nan, **(first | {"step": first["step"] + line - 1}))
    assert symptoms_of([run]).from_start is from_start


def test_a_perplexity_of_0_beside_a_missing_loss_is_missing_too():
    assert not series(ppl=[0.0, 0.0]).impossible
    assert series(ppl=[0.2, 0.2]).impossible == "ppl"
    assert series(*losses(3, 2.5), ppl=[0.0, 0.0]).impossible == "ppl"


def test_one_absurd_loss_among_many_usual_ones_is_no_explosion_and_two_in_a_row_are():
    usual = [0.5, 0.4, 0.45, 0.42, 0.41, 0.4, 0.43]
    seen = series(*losses(*usual, 5e7, *usual))
    assert seen.lone_spike
    assert not seen.explodes
    assert not seen.absurd
    assert series(*losses(*usual, 5e7, 6e7, *usual)).explodes


def test_nothing_read_is_neither_healthy_nor_sick():
    assert not symptoms_of([]).healthy
    assert symptoms_of([]).trouble == []


def test_a_nan_loss_is_dated_by_the_first_bad_point():
    seen = series(*losses(3, 2, math.nan, math.nan))
    assert (seen.good_before, seen.bad, seen.first_bad.step) == (2, 2, 3)
    assert seen.where["first_bad"] == "train.log:3"
    assert "the loss is NaN or inf" in seen.trouble


def test_a_healthy_loss_beside_a_nan_norm_is_sick_when_it_stays():
    assert "the gradient norm is NaN or inf" in series(*[{"loss": 2.0, "grad_norm": math.nan}] * 4).trouble


def test_bad_norms_of_the_first_steps_alone_are_a_scaler_that_settles():
    first = [{"loss": 2.0, "grad_norm": math.inf}] * 2
    later = [{"loss": 1.5 - i / 50, "grad_norm": 1.0} for i in range(6)]
    seen = series(*first, *later)
    assert seen.settles
    assert seen.healthy


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0), (2.0, 1.5, 0.0, 0.0, 0.0)])
def test_a_loss_of_0_that_stays_was_not_earned(values):
    assert "the loss is 0" in series(*losses(*values)).trouble


def test_one_logged_zero_among_good_losses_is_no_trouble():
    assert series(*losses(2.0, 0.0, 1.9, 1.8)).healthy


def test_a_summary_counts_where_nothing_else_was_logged():
    assert "the loss is 0" in series(train_loss=[0.0]).trouble
    assert "the loss is NaN or inf" in series(train_loss=[math.nan]).trouble


@pytest.mark.parametrize(
    ("rates", "zero"),
    [
        ([0.0, 1e-5, 2e-5], False),
        ([1e-4, 1e-5, 0.0], False),
        ([0.0, 0.0, 0.0], True),
        ([1e-4, 0.0, 0.0, 0.0, 0.0], True),
    ],
)
def test_a_warmup_that_starts_at_0_and_a_schedule_that_ends_there_are_fine(rates, zero):
    assert series(*[{"loss": 2.0 - i / 10, "lr": lr} for i, lr in enumerate(rates)]).lr_zero is zero


def test_a_climb_before_the_nan_is_told_from_a_sudden_one():
    climbing = series(
        *[{"loss": v, "grad_norm": n} for v, n in ((2, 1), (3, 20), (9, 300), (40, 4e3), (math.nan, math.nan))]
    )
    sudden = series(
        *[{"loss": v, "grad_norm": n} for v, n in ((2, 1), (1.9, 1), (1.8, 1), (1.8, 1), (math.nan, math.nan))]
    )
    hard_batch = series(*losses(0.53, 1.55, 2.33, 1.14, 1.3, 3.67, 1.13, 1.12, math.nan))
    assert climbing.explodes
    assert not sudden.explodes
    assert not hard_batch.explodes


def test_a_search_from_far_above_that_finds_its_scale_is_no_collapse():
    searching = [{"loss_scale": 2.0**power, "skipped": True} for power in range(32, 8, -1)]
    learning = [{"loss": 3.0 - 0.02 * step, "loss_scale": 256.0} for step in range(60)]
    assert not series(*searching, *learning).collapses
    assert not series(*searching[:16]).collapses  # from 2**32 it takes as many to come to the usual 2**16
    assert series(*searching).collapses
    assert series(*learning, *searching).collapses
    assert series(*learning[:5], *searching, *losses(*[math.nan] * 60)).collapses


def test_a_scale_that_falls_to_nothing_collapses_and_one_that_settles_does_not():
    falling = [{"loss_scale": 2.0**-k, "skipped": True} for k in range(-3, 6)]
    settling = [{"loss_scale": 2.0**k, "skipped": True} for k in (15, 14)] + losses(2.0, 1.9, 1.8)
    assert series(*falling).collapses
    assert not series(*settling).collapses


def test_a_noisy_plateau_neither_diverges_nor_stands_still():
    assert series(*losses(*[1.0 + 0.3 * math.sin(7 * i) for i in range(60)])).healthy


def test_a_loss_that_ends_far_above_its_best_diverges():
    assert series(*losses(*[3 - i / 10 for i in range(20)], *[1.1 * 1.2**i for i in range(20)])).diverges


@pytest.mark.parametrize(
    ("values", "sick"),
    [
        ([1.42, 1.67, 5.93, 7.81, 7.55], True),
        ([3.1, 11.8, 47.0], True),
        ([3.91, 3.40, 3.62, 5.21, 7.09, 7.08], True),
        ([*[4 - i / 20 for i in range(20)], *[3 + i / 5 for i in range(20)]], True),
        ([1.9, 3.8, 5.8], False),  # a running sum
        ([1.39, 1.21, 1.06, 1.69], False),  # one batch
        ([0.64, 0.64, 0.54, 0.74, 0.73, 0.81], False),  # single batches
        ([6.1, 6.1, 372.0], False),  # one batch, or another quantity
        ([58.0, 43.4, 47.9, 50.2, 68.2, 61.7, 76.5, 83.7, 108.0], False),  # sorted by length
        ([2.0, 3.5, 1.9, 3.6, 2.1, 3.4], False),
    ],
)
def test_a_loss_that_rises_well_above_its_first_diverges_and_ups_and_downs_do_not(values, sick):
    assert series(*losses(*values)).diverges is sick


def test_a_loss_that_the_first_update_throws_away_diverges_and_one_that_grows_from_nothing_does_not():
    thrown = [1.2, *[15_000.0 + 9_000 * math.sin(7 * i) for i in range(30)]]
    saturated = [0.0 if i % 5 == 3 else value for i, value in enumerate(thrown)]
    assert series(*losses(*thrown)).diverges
    assert series(*losses(*saturated)).diverges
    assert not series(*losses(*thrown, *[900 * 0.7**i for i in range(20)])).diverges  # it comes back
    assert not series(*losses(0.001, *[2 + 0.3 * math.sin(7 * i) for i in range(30)])).diverges
    assert not series(*losses(1.2, *[60 + 9 * math.sin(7 * i) for i in range(30)])).diverges


def test_a_few_epochs_that_are_equal_to_the_last_digit_stand_still():
    assert series(*losses(*[0.7931] * 10)).trouble == ["the loss does not move"]
    assert series(*losses(*[0.79] * 10)).healthy  # with two digits it may well move
    assert series(*losses(*[0.7931] * 6)).healthy
    assert series(*losses(*[0.7931] * 9, 0.7928)).healthy


def test_many_equal_losses_stand_still():
    assert "the loss does not move" in series(*losses(*[0.7931] * 30)).trouble


@pytest.mark.parametrize(("stays", "classes"), [(0.6931, 2), (2.302, 10), (4.606, 100)])
def test_a_loss_that_never_leaves_the_loss_of_a_guess_is_told_with_its_classes(stays, classes):
    assert series(*losses(*[stays] * 4)).chance == classes
    assert series(*losses(stays, 0.97 * stays, 0.95 * stays, 0.94 * stays)).healthy
    assert series(*losses(*[stays] * 3)).healthy


def test_a_loss_that_jumps_in_the_second_step_diverges_and_a_growing_sum_does_not():
    assert "the loss diverges" in series(*losses(1.9, 11.4)).trouble
    assert "the loss diverges" in series(*losses(1.9, 11.4, 11.2, 11.3)).trouble
    assert series(*losses(1.9, 3.8, 5.8, 7.7)).healthy
    assert series(*losses(1.9, 11.4, 2.0, 1.8)).healthy


def test_of_several_series_the_sickest_speaks():
    fine, bad = RunSeries("a.log"), RunSeries("b.log")
    for step in range(5):
        fine.add(step, step=step, loss=2.0 - step / 10)
        bad.add(step, step=step, loss=math.nan)
    assert symptoms_of([fine, bad]).source == "b.log"


@pytest.mark.parametrize("count", [3, 4, 5, 7, 16, 30])
def test_a_few_losses_of_small_batches_are_no_climb(count):
    draws = (random.Random(1000 * seed + count) for seed in range(400))
    assert sum(diverges([draw.lognormvariate(1, 0.25) for _ in range(count)]) for draw in draws) <= 12


@pytest.mark.parametrize("count", [8, 12, 30, 200])
def test_losses_of_single_batches_that_differ_much_are_no_divergence(count):
    """As in a diffusion model, whose loss depends on a random noise level."""
    alarms = 0
    for seed in range(200):
        draw = random.Random(seed)
        alarms += diverges([draw.lognormvariate(-2, 1) for _ in range(count)])
    assert alarms <= 6


def test_a_loss_that_only_rises_does_not_swing():
    assert not swings([*(2.5 - 0.05 * at for at in range(30)), *(2.0**at for at in range(30))])


@pytest.mark.parametrize(("fall", "flat"), [(0.0, True), (0.03, False)])
def test_a_run_from_its_first_step_on_that_stays_in_a_narrow_band_does_not_move(fall, flat):
    draw = random.Random(0)
    run = RunSeries("train.log")
    for line in range(1, 101):
        run.add(line, step=100 * (line - 1), loss=7.6 * (1 - fall * line / 100) + draw.uniform(-0.02, 0.02))
    assert symptoms_of([run]).flat is flat


def test_a_limit_that_is_infinite_is_a_setting():
    assert series(*losses(3, 2.5, 2.2, 2.0), grad_clip=[math.inf], max_grad_norm=[math.inf]).healthy
    assert not series(*losses(3, 2.5, 2.2, 2.0), grad_mean=[0.1, math.inf]).healthy


@pytest.mark.parametrize("falls", [False, True])
def test_noisy_batches_swing_unless_their_average_falls(falls):
    told = []
    for seed in range(40):
        draw = random.Random(seed)
        told.append(swings([(3.6 - falls * at / 200) * draw.lognormvariate(0, 0.6) for at in range(300)]))
    assert sum(told) <= 8 if falls else sum(told) > 20


@given(
    noise=st.lists(st.floats(-0.3, 0.3), min_size=20, max_size=200),
    share=st.floats(0.4, 0.85),
    factor=st.floats(8, 1e4),
)
def test_losses_that_leap_and_stay_diverge(noise, share, factor):
    at = int(share * len(noise))
    assert diverges([math.exp(value) * (factor if index >= at else 1) for index, value in enumerate(noise)])


def test_an_accuracy_that_is_gone_from_one_epoch_to_the_next_is_trouble():
    assert series(val_acc=[99.718, 0.03]).lost_score == "val_acc"
    assert not series(val_acc=[99.718, 97.03]).lost_score
    assert not series(val_acc=[12.0, 0.1]).lost_score


def test_preference_losses_are_those_of_a_classifier():
    rising = losses(0.69, 0.58, 5.9, 7.3, 9.1, 11.2)
    assert series(*rising, **{"rewards/chosen": [0, -1, -9, -20, -28, -33]}).trouble
    assert not series(*rising, episode_reward=[1, 2, 4, 8, 16, 32]).trouble
