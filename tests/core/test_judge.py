import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from make_signals import INF, NAN, play, sequences, signals, small_policies
from stayfinite.core.decision import Action, Code
from stayfinite.core.judge import Memory
from stayfinite.core.policy import Policy
from stayfinite.errors import StateError


def through_json(memory):
    return Memory.from_json(json.loads(json.dumps(memory.to_json())))


@given(small_policies, sequences(), st.integers(0, 60))
def test_a_memory_saved_at_any_point_continues_with_the_same_decisions_and_findings(policy, steps, cut):
    before, after = steps[:cut], steps[cut:]
    memory = play(before, policy).memory
    loaded = through_json(memory)
    assert loaded == memory
    one, other = play(after, policy, memory), play(after, policy, loaded)
    assert one == other


def test_a_memory_survives_json_with_everything_in_it():
    steps = [signals(lr=0.0, silent=3, parameters=4)] * 70 + [signals(NAN), signals(norm=INF, loss_scale=8.0)]
    memory = play(steps + [signals(90.0)] * 2, Policy.refuse_spikes()).memory
    assert memory.ladder.vetoes == {"loss-not-finite": 1, "scale-search": 1, "loss-spike": 2}
    assert memory.trends.reported == {"lr-zero", "loss-collapse"}
    assert through_json(memory) == memory


def test_a_memory_from_before_rows_were_counted_is_read():
    plain = play([signals()] * 3 + [signals(NAN)] * 22).memory.to_json()
    assert plain["ladder"].pop("row")
    memory = Memory.from_json(plain)
    assert memory.ladder.row.count == 0
    assert memory.ladder.vetoes == {"loss-not-finite": 22}


def test_a_memory_of_another_version_is_refused_with_both_versions():
    plain = Memory().to_json() | {"version": 99}
    with pytest.raises(StateError, match="has version 99; this stayfinite reads 1"):
        Memory.from_json(plain)


@pytest.mark.parametrize(
    "plain",
    [
        {},
        None,
        {"version": 1},
        {"version": 1, "ladder": {}, "trends": {}},
        Memory().to_json() | {"trends": {"unknown": 1}},
        Memory().to_json() | {"ladder": {"spikes": {"losses": ["much"], "norms": []}}},
    ],
    ids=["empty", "none", "version only", "no fields", "unknown field", "words for numbers"],
)
def test_what_is_no_memory_is_refused_with_the_remedy(plain):
    with pytest.raises(StateError, match=r"not a guard state(.|\n)*fix: pass what guard.state_dict\(\) returned"):
        Memory.from_json(plain)


@given(small_policies, sequences())
def test_watching_refuses_nothing_and_sees_what_protecting_would_see(policy, steps):
    budgets = {"max_vetoes": None, "max_vetoes_in_a_row": len(steps)}
    watched = play(steps, Policy(**policy.to_json() | {"mode": "watch"}))
    protected = play(steps, Policy(**policy.to_json() | budgets))
    assert watched.actions <= {Action.ACCEPT, Action.CLIP}
    assert [decision.code for decision in watched.decisions] == [decision.code for decision in protected.decisions]
    assert watched.memory.ladder == protected.memory.ladder


def test_watching_says_what_it_saw_and_that_the_step_was_taken():
    decision = play([signals(NAN)], Policy.watch()).decisions[0]
    assert (decision.action, decision.code) == (Action.ACCEPT, Code.LOSS_NOT_FINITE)
    assert decision.notable
    assert decision.reason == "loss is nan; gradients are finite (norm 1) (taken; monitoring only)"


@given(small_policies, sequences())
def test_a_strict_policy_refuses_without_stopping_only_while_the_scaler_searches(policy, steps):
    strict = Policy(**policy.to_json() | {"mode": "strict"})
    for decision in play(steps, strict).decisions:
        assert (decision.action is Action.VETO) == (decision.code is Code.SCALE_SEARCH)
        assert (decision.action is Action.STOP) == (decision.code is Code.STRICT)
        assert decision.refused or decision.signals.finite


def test_slow_trouble_is_reported_beside_the_decision():
    played = play([signals(lr=0.0, step=i) for i in range(1, 11)])
    assert played.causes == [("lr-zero", "step 10")]
    assert played.refused == []
