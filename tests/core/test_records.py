import json

from make_signals import INF, NAN, play, signals
from stayfinite.core.records import decision_record, finding_record, plain_event, step_record

TIME = "2026-01-02T03:04:05Z"


def line(record):
    text = json.dumps(record)
    assert "\n" not in text
    return json.loads(text)


def test_the_line_of_a_step_holds_its_numbers_and_the_decision():
    step = signals(2.0, 0.5, step=7, lr=1e-3, loss_scale=1024.0, parts={"kl": 0.25})
    assert line(step_record(play([step]).decisions[0])) == {
        "version": 1, "step": 7, "loss": 2.0, "grad_norm": 0.5, "lr": 1e-3, "loss_scale": 1024.0,
        "decision": "accept", "code": "finite", "parts": {"kl": 0.25},
    }  # fmt: skip


def test_a_step_without_named_losses_has_no_parts():
    assert "parts" not in step_record(play([signals()]).decisions[0])


def test_numbers_that_are_not_finite_come_back_from_the_line_as_they_were():
    record = line(step_record(play([signals(INF, -INF)]).decisions[0]))
    assert (record["loss"], record["grad_norm"], record["decision"]) == (INF, -INF, "veto")


def test_the_line_of_a_veto_says_when_why_and_where():
    step = signals(NAN, 1.0, step=3, batch=12, batch_shape="int64[8]", bad_parameters=("w",), bad_count=1, parameters=2)
    record = line(decision_record(play([step]).decisions[0], TIME))
    assert str(record.pop("loss")) == "nan"
    assert record == {
        "version": 1, "time": TIME, "event": "veto", "step": 3, "code": "loss-not-finite",
        "reason": "loss is nan; 1 of 2 gradients are NaN or inf, first w", "grad_norm": 1.0, "loss_scale": None,
        "batch": 12, "batch_shape": "int64[8]", "bad_parameters": ["w"], "bad_count": 1, "bad_ranks": [],
    }  # fmt: skip


def test_the_line_of_a_finding_holds_the_finding():
    (finding,) = play([signals(lr=0.0, step=i) for i in range(1, 11)]).findings
    record = line(finding_record(finding, 10, TIME))
    assert record == {"version": 1, "time": TIME, "event": "finding", "step": 10} | {
        "code": "SF202", "cause": "lr-zero", "severity": "warning", "confidence": 0.8, "where": "step 10",
        "title": finding.title, "evidence": ["learning rate 0 for 10 steps"], "fix": finding.fix,
    }  # fmt: skip


def test_any_other_event_carries_its_details():
    assert line(plain_event("close", 9, TIME, {"vetoes": 2})) == {
        "version": 1, "time": TIME, "event": "close", "step": 9, "vetoes": 2,
    }  # fmt: skip
