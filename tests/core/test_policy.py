import copy
import dataclasses
import inspect
import json
import pickle

import pytest

from make_signals import INF, NAN
from stayfinite.core.policy import Policy
from stayfinite.errors import PolicyError, StayfiniteError

COUNTS = {
    "window": 4, "warmup": 2, "level_change_after": 1, "max_vetoes_in_a_row": 0, "max_vetoes": 0, "scale_search": 0,
    "sample_every": 0, "zero_steps": 1, "constant_steps": 2, "lr_zero_steps": 1, "trend_steps": 4, "trend_windows": 2,
    "silent_steps": 1,
}  # fmt: skip
NUMBERS = ("sigmas", "warmup_widening", "loss_floor", "norm_floor", "min_loss_scale", "silent_share")


def test_the_defaults_are_six_sigma_over_the_last_128_steps():
    policy = Policy()
    assert (policy.mode, policy.sigmas, policy.window, policy.sample_every) == ("protect", 6.0, 128, 50)


def test_the_default_budget_in_a_row_leaves_room_for_a_level_change():
    assert Policy().level_change_after < Policy().max_vetoes_in_a_row


def test_watch_and_strict_take_every_other_setting():
    assert Policy.watch(window=32) == Policy(mode="watch", window=32)
    assert Policy.strict(window=32) == Policy(mode="strict", window=32)


def test_a_policy_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().window = 3


def test_every_setting_is_given_by_keyword():
    with pytest.raises(PolicyError, match="settings are given by name"):
        Policy("watch")


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", ["below", 2.5, True, "8", NAN])
def test_a_count_outside_its_range_is_refused_by_name(name, value):
    value = COUNTS[name] - 1 if value == "below" else value
    with pytest.raises(
        PolicyError, match=rf"Policy\({name}={value!r}\): expected a whole number of at least {COUNTS[name]}"
    ):
        Policy(**{name: value})


@pytest.mark.parametrize(("name", "least"), COUNTS.items())
def test_the_least_count_is_allowed(name, least):
    settings = {"warmup": 2} | {name: least}
    assert getattr(Policy(**settings), name) == least


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [0, -1.0, NAN, True, "much", None])
def test_a_number_that_is_not_above_zero_is_refused_by_name(name, value):
    with pytest.raises(PolicyError, match=rf"Policy\({name}={value!r}\): expected a number above 0"):
        Policy(**{name: value})


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Policy)])
def test_no_setting_takes_just_anything(name):
    with pytest.raises(PolicyError, match=rf"Policy\({name}=\['off'\]\): expected"):
        Policy(**{name: ["off"]})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "lenient"}, "Policy(mode='lenient'): expected one of 'protect', 'watch', 'strict'"),
        ({"gate": "gpu"}, "Policy(gate='gpu'): expected one of 'auto', 'device', 'host'"),
        ({"warmup_widening": 0.5}, "Policy(warmup_widening=0.5): expected at least 1"),
        ({"silent_share": 1.5}, "Policy(silent_share=1.5): expected a share above 0 and up to 1"),
        ({"window": 8, "warmup": 9}, "Policy(warmup=9): expected at most the window (8)"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_with_what_is_expected(settings, message):
    with pytest.raises(PolicyError) as caught:
        Policy(**settings)
    assert message in str(caught.value)
    assert "fix: " in str(caught.value)


@pytest.mark.parametrize("build", [Policy, Policy.watch, Policy.strict, Policy.refuse_spikes, Policy.only_nonfinite])
@pytest.mark.parametrize(
    ("name", "close"), [("sigma", "sigmas"), ("max_veto", "max_vetoes"), ("max_rollback", "max_rollbacks")]
)
def test_a_setting_that_does_not_exist_is_refused_with_the_closest_one(build, name, close):
    with pytest.raises(PolicyError, match=f"Policy has no setting {name}") as caught:
        build(**{name: 3})
    assert caught.value.fix == f"did you mean {close}?"


def test_a_setting_like_no_other_is_refused_with_the_remedy():
    with pytest.raises(PolicyError, match="Policy has no setting zzz") as caught:
        Policy(zzz=1)
    assert "help(stayfinite.Policy)" in caught.value.fix


def test_a_policy_shows_its_settings_to_tools_and_can_be_copied():
    assert "sigmas" in inspect.signature(Policy).parameters
    policy = Policy(sigmas=8.0)
    assert dataclasses.replace(policy, window=256) == Policy(sigmas=8.0, window=256)
    assert pickle.loads(pickle.dumps(policy)) == copy.deepcopy(policy) == policy


def test_a_wrong_setting_is_a_value_error_and_one_of_ours():
    assert issubclass(PolicyError, ValueError)
    assert issubclass(PolicyError, StayfiniteError)


@pytest.mark.parametrize("policy", [Policy(), Policy.watch(max_vetoes=None, sigmas=INF)])
def test_a_policy_survives_json(policy):
    assert Policy(**json.loads(json.dumps(policy.to_json()))) == policy
