import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from make_signals import INF, NAN, play, sequences, signals, small_policies
from stayfinite.core.decision import Action, Code
from stayfinite.core.ladder import LadderState, Options, decide
from stayfinite.core.policy import Policy
from stayfinite.core.spikes import Verdict

POLICY = Policy.refuse_spikes()
BOUND = Policy()
levels = st.tuples(st.floats(-1e30, 1e30), st.floats(0, 1e30))


def first(step, policy=POLICY, **more):
    return decide(step, LadderState(), policy, **more)[0]


def calm():
    """The ladder's state after steps of loss 2 and gradient norm 1."""
    return play([signals()] * 20, POLICY).memory.ladder


def overflow(scale, step=1):
    return signals(2.0, INF, step, loss_scale=scale)


def test_an_ordinary_step_is_accepted_without_a_word():
    decision = first(signals())
    assert (decision.action, decision.code, decision.reason) == (Action.ACCEPT, Code.FINITE, "")
    assert not decision.refused
    assert not decision.notable


def test_a_gradient_above_max_norm_is_clipped_which_is_everyday_business():
    decision = first(signals(norm=3.0), max_norm=0.5)
    assert (decision.action, decision.code) == (Action.CLIP, Code.LARGE_GRADIENT)
    assert decision.reason == "grad norm 3 clipped to 0.5"
    assert not decision.refused
    assert not decision.notable


def test_a_gradient_at_max_norm_is_not_clipped():
    assert first(signals(norm=0.5), max_norm=0.5).action is Action.ACCEPT


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize(
    ("field", "code"), [("loss", Code.LOSS_NOT_FINITE), ("norm", Code.GRADIENT_NOT_FINITE)]
)  # fmt: skip
def test_a_step_that_is_not_finite_is_vetoed_with_its_code(field, code, bad):
    decision = first(signals(**{field: bad}))
    assert (decision.action, decision.code) == (Action.VETO, code)
    assert decision.refused
    assert decision.notable


def test_a_loss_spike_is_vetoed_and_says_what_is_usual():
    decision, _ = decide(signals(loss=80.0), calm(), POLICY)
    assert (decision.action, decision.code) == (Action.VETO, Code.LOSS_SPIKE)
    assert decision.reason == "loss 80 (median of the last 20 steps 2)"


def test_a_gradient_spike_is_vetoed_and_says_what_is_usual():
    decision, _ = decide(signals(norm=80.0), calm(), POLICY)
    assert (decision.action, decision.code) == (Action.VETO, Code.GRADIENT_SPIKE)
    assert decision.reason == "grad norm 80 (median of the last 20 steps 1), loss 2"


def test_the_reason_names_the_part_of_the_loss_and_the_first_parameters_that_are_not_finite():
    step = signals(NAN, NAN, parts={"mlm": 1.0, "nsp": INF}, bad_parameters=("a", "b"), bad_count=7, parameters=9)
    assert first(step).reason == "loss is nan (its part nsp inf); 7 of 9 gradients are NaN or inf, first a, b"


def test_the_reason_tells_a_norm_that_overflows_from_gradients_that_do():
    assert "it overflows although each gradient is finite" in first(signals(norm=INF, parameters=3)).reason


def test_of_gradients_that_an_engine_keeps_only_the_norm_is_known():
    assert first(signals(norm=INF)).reason == "loss is 2; gradients are NaN or inf"


def test_the_reason_says_that_the_gradients_are_fine_when_only_the_loss_is_not():
    assert first(signals(NAN, 0.5)).reason == "loss is nan; gradients are finite (norm 0.5)"


def test_the_reason_names_a_collapsed_loss_scale():
    assert "the loss scale has collapsed to 0.25" in first(overflow(0.25)).reason


def test_what_a_device_has_decided_stands():
    decision, state = decide(signals(), calm(), POLICY, verdict=Verdict.LOSS_SPIKE)
    assert (decision.action, decision.code) == (Action.VETO, Code.LOSS_SPIKE)
    assert state.in_a_row == 1


def test_no_device_can_talk_the_ladder_into_accepting_what_is_not_finite():
    new_level = Verdict.LOSS_SPIKE | Verdict.NEW_LEVEL
    assert first(signals(NAN), verdict=new_level).code is Code.LOSS_NOT_FINITE


def test_a_new_level_is_accepted_and_worth_a_word():
    played = play([signals()] * 20 + [signals(loss=80.0)] * 9, POLICY)
    last = played.decisions[-1]
    assert (last.action, last.code, last.refused, last.notable) == (Action.ACCEPT, Code.NEW_LEVEL, False, True)
    assert len(played.refused) == POLICY.level_change_after


def test_the_run_stops_when_one_step_more_than_allowed_is_refused_in_a_row():
    played = play([signals(NAN)] * 4, Policy(max_vetoes_in_a_row=3))
    assert [decision.action for decision in played.decisions] == ["veto", "veto", "veto", "stop"]
    assert played.decisions[-1].code is Code.VETOES_IN_A_ROW


def test_an_accepted_step_renews_the_budget_in_a_row_but_not_the_one_in_total():
    policy = Policy(max_vetoes_in_a_row=1, max_vetoes=3)
    played = play([signals(), signals(NAN)] * 4, policy)
    assert [decision.action for decision in played.decisions] == ["accept", "veto"] * 3 + ["accept", "stop"]
    assert played.decisions[-1].code is Code.VETOES_IN_TOTAL


def test_without_a_total_budget_vetoes_that_come_one_by_one_never_stop_a_run():
    assert "stop" not in play([signals(), signals(NAN)] * 300, Policy(max_vetoes=None)).actions
    assert "stop" in play([signals(), signals(NAN)] * 300).actions


def test_a_stop_says_what_was_tried():
    steps = [signals()] * 20 + [signals(80.0), overflow(8.0), signals(NAN), signals(NAN)]
    played = play(steps, Policy.refuse_spikes(max_vetoes_in_a_row=2))
    assert played.decisions[-1].reason == (
        "3 steps in a row were refused, 1 with a loss spike, 2 with a NaN loss; "
        "the last: loss is nan; gradients are finite (norm 1)"
    )


def climbed(steps, policy=None, **available):
    """The decisions of steps on which these actions are available."""
    state, policy = LadderState(), policy or Policy()
    decisions = []
    for step in steps:
        decision, state = decide(step, state, policy, options=Options(**available))
        decisions.append(decision)
    return decisions


def test_a_stop_after_a_cut_counts_all_refused_steps_of_the_row_and_says_what_did_not_help():
    decisions = climbed([signals(NAN)] * 27, cut=True)
    assert [(i, d.action) for i, d in enumerate(decisions, 1) if d.action != "veto"] == [(21, "cut"), (27, "stop")]
    assert decisions[20].reason.startswith("21 steps in a row were refused, all with a NaN loss; the last: ")
    assert decisions[26].reason == (
        "27 steps in a row were refused, all with a NaN loss; cutting the learning rate after 21 did not help; "
        "the last: loss is nan; gradients are finite (norm 1)"
    )
    assert {d.why or d.code for d in decisions} == {Code.LOSS_NOT_FINITE}


def test_all_rungs_of_a_row_are_named_and_those_from_before_it():
    ends = climbed([signals(INF)] * 33, cut=True, rollback_to=3)[-1].reason
    assert ends.startswith(
        "33 steps in a row were refused, all with an infinite loss; "
        "cutting the learning rate after 21 and rolling back after 27 did not help; the last: "
    )
    again = climbed([signals(NAN)] * 21 + [signals()] + [signals(NAN)] * 6, cut=True)[-1].reason
    assert again.startswith("6 steps in a row were refused, all with a NaN loss; earlier in the run: 1 x cut; the last")


def test_a_stop_at_the_first_step_or_after_steps_that_were_earned_back_counts_right():
    assert climbed([signals(NAN)], Policy(max_vetoes_in_a_row=0))[-1].reason.startswith(
        "1 step was refused, with a NaN loss; the last: "
    )
    forgiving = Policy(max_vetoes=2, forgive_after=3)
    ends = climbed([*[signals(NAN)] * 2, *[signals()] * 3, *[signals(norm=INF)] * 2], forgiving)[-1]
    assert ends.code is Code.VETOES_IN_TOTAL
    assert ends.reason.startswith(
        "4 steps in all were refused, 1 of them earned back, "
        "2 with a NaN or infinite loss, 2 with NaN or inf gradients; the last: "
    )


def test_overflows_while_the_scaler_finds_its_scale_are_vetoed_and_not_held_against_the_budget():
    policy = Policy(max_vetoes_in_a_row=0, max_vetoes=0, scale_search=5)
    played = play([overflow(2.0**16 / 2**i) for i in range(5)] + [signals()], policy)
    assert [decision.code for decision in played.decisions] == [Code.SCALE_SEARCH] * 5 + [Code.FINITE]
    assert len(played.refused) == 5
    ladder = played.memory.ladder
    assert (ladder.in_total, ladder.searching, ladder.vetoes) == (0, 0, {"scale-search": 5})


def test_a_scale_search_that_goes_on_too_long_counts():
    played = play([overflow(2.0**30)] * 3, Policy(scale_search=2))
    assert [decision.code for decision in played.decisions[1:]] == [Code.SCALE_SEARCH, Code.GRADIENT_NOT_FINITE]


@pytest.mark.parametrize("scale", [None, 0.5, 0.0, NAN, INF])
def test_an_overflow_without_a_sound_scale_is_no_search(scale):
    assert first(overflow(scale)).code is Code.GRADIENT_NOT_FINITE


def test_a_loss_that_is_not_finite_is_no_scale_search():
    assert first(signals(NAN, NAN, loss_scale=65536.0)).code is Code.LOSS_NOT_FINITE


def test_a_strict_policy_stops_at_the_first_bad_step():
    played = play([signals()] * 3 + [signals(norm=NAN)], Policy.strict())
    assert [decision.action for decision in played.decisions] == ["accept"] * 3 + ["stop"]
    assert played.decisions[-1].code is Code.STRICT


def test_a_strict_policy_stops_at_a_finite_spike_only_if_it_is_told_to_refuse_spikes():
    steps = [signals()] * 20 + [signals(80.0)]
    assert play(steps, Policy.strict()).decisions[-1].action is Action.ACCEPT
    assert play(steps, Policy.strict(spikes="refuse")).decisions[-1].action is Action.STOP


def test_an_unusual_gradient_is_bounded_and_says_what_is_usual():
    decision, state = decide(signals(norm=80.0), calm(), BOUND)
    assert (decision.action, decision.code) == (Action.BOUND, Code.UNUSUAL_GRADIENT)
    assert decision.limit == pytest.approx(4.48, abs=0.01)
    assert decision.reason == "grad norm 80 (median of the last 20 steps 1), loss 2; limited to 4.482"
    assert not decision.refused
    assert decision.notable
    assert (state.accepted, state.vetoes) == (21, {})


def test_an_unusual_loss_with_a_usual_gradient_is_taken_without_a_word():
    decision, _ = decide(signals(loss=80.0), calm(), BOUND)
    assert (decision.action, decision.code, decision.limit) == (Action.ACCEPT, Code.UNUSUAL_LOSS, None)
    assert not decision.notable


def test_clipping_that_does_as_much_is_no_bounding():
    decision, _ = decide(signals(norm=80.0), calm(), BOUND, max_norm=1.0)
    assert (decision.action, decision.code, decision.limit) == (Action.CLIP, Code.LARGE_GRADIENT, None)
    decision, _ = decide(signals(norm=80.0), calm(), BOUND, max_norm=10.0)
    assert decision.action is Action.BOUND


def test_a_limit_that_a_device_has_found_stands():
    verdict = Verdict.GRADIENT_SPIKE | Verdict.TAKEN
    decision, state = decide(signals(norm=80.0), calm(), BOUND, verdict=verdict, limit=3.0)
    assert decision.limit == pytest.approx(20.0855, rel=1e-4)
    assert state.spikes.norms[-1] == 3.0


def test_a_strict_policy_lets_the_scaler_find_its_scale():
    played = play([overflow(65536.0), overflow(32768.0), signals(loss_scale=16384.0)], Policy.strict())
    assert [decision.action for decision in played.decisions] == ["veto", "veto", "accept"]


@given(small_policies, sequences(), st.lists(st.none() | st.builds(Verdict, st.integers(0, 15)), min_size=1))
def test_no_sequence_of_signals_and_no_device_makes_the_policy_accept_what_is_not_finite(policy, steps, verdicts):
    state = LadderState()
    for step, verdict in zip(steps, itertools.cycle(verdicts)):
        decision, state = decide(step, state, policy, max_norm=1.0, verdict=verdict)
        assert step.finite or decision.refused


@given(sequences(most=100))
def test_no_sequence_of_signals_makes_the_default_policy_accept_what_is_not_finite(steps):
    for decision in play(steps).decisions:
        assert decision.signals.finite or decision.refused


@given(small_policies, sequences(most=100))
def test_no_run_of_refusals_outlasts_the_budgets(policy, steps):
    refused = 0
    for decision in play(steps, policy).decisions:
        if decision.action is Action.STOP:
            break
        refused = refused + 1 if decision.refused else 0
        assert refused <= policy.max_vetoes_in_a_row + policy.scale_search


@given(small_policies, sequences(most=100))
def test_no_run_outlasts_the_total_budget(policy, steps):
    counted = 0
    for decision in play(steps, policy).decisions:
        if decision.action is Action.STOP:
            break
        counted += decision.refused and decision.code is not Code.SCALE_SEARCH
        assert policy.max_vetoes is None or counted <= policy.max_vetoes


@given(st.sampled_from([signals(NAN), signals(norm=INF), overflow(65536.0)]), small_policies)
def test_training_that_stays_bad_is_always_stopped(step, policy):
    budget = policy.max_vetoes_in_a_row + policy.scale_search + 1
    assert play([step] * budget, policy).decisions[-1].action is Action.STOP


@given(st.lists(st.tuples(levels, st.integers(1, 40)), min_size=1, max_size=6))
def test_levels_that_change_for_good_never_stop_the_default_policy(phases):
    memory = None
    for (loss, norm), length in phases:
        played = play([signals(loss, norm, i) for i in range(length)], memory=memory)
        memory = played.memory
        assert "stop" not in played.actions
        assert played.refused == list(range(len(played.refused)))
        assert len(played.refused) <= POLICY.level_change_after
