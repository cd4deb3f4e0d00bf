"""The benchmark of failures: its cases are labeled and apart, its tools answer, its tables are those of the script."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from benchmarks.failures import tables
from benchmarks.failures.__main__ import USED, main
from benchmarks.failures.adapters import TOOLS
from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.adapters.transformers import _named
from benchmarks.failures.campaign import READERS, put
from benchmarks.failures.cases import OURS, PARTS, SPLITS, Answer, Case, Result
from benchmarks.failures.logs import reading as logs
from benchmarks.failures.naming import named_by_backward, named_by_error
from benchmarks.failures.programs import reading as programs
from benchmarks.failures.programs.reading import Program
from benchmarks.failures.scoring import score
from benchmarks.failures.steps.record import StepCase, Training

from stayfinite.rules.registry import all_rules

pytestmark = [
    pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork"),
]

LOOP = """
import torch

torch.manual_seed(0)
x = torch.randn(64, 4)
y = x.sum(1, keepdim=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step()
print("loss", loss.item())
"""
MEAN = "((model(x) - y) ** 2).mean()"


def program(loss: str = MEAN, causes: tuple[str, ...] = ()) -> Program:
    return Program(
        part="programs", split="unseen", name="loop", causes=causes, base="loop", text=LOOP.format(loss=loss)
    )


def asked(name: str, case: Case) -> Result:
    tool = TOOLS[name]()
    tool.prepare()
    return put(tool, case)


def step_case(bad: bool) -> StepCase:
    def build() -> Training:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        batches = [torch.randn(8, 4) for _ in range(4)]
        if bad:
            batches[2][5, 1] = float("nan")
        return Training(
            model=model, forward=lambda batch: model(batch).abs().mean(), batches=batches,
            optimizer=torch.optim.SGD(model.parameters(), lr=1e-2),
        )  # fmt: skip

    return StepCase(part="steps", split="unseen", name="step", causes=("bad-data-row",) if bad else (), build=build)


# -- the cases


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("part", ["programs", "logs"])
def test_every_case_has_a_source_a_licence_and_known_causes(part, split):
    slugs = {rule.slug for rule in all_rules()}
    for case in READERS[part](split):
        assert case.source, case.name
        assert case.licence, case.name
        assert set(case.causes) <= slugs, case.name
        assert (case.source == OURS) == (part != "logs"), case.name


def test_every_label_of_a_log_is_a_rule_or_healthy():
    slugs = {rule.slug for rule in all_rules()} | {"healthy"}
    for split in SPLITS:
        assert [case.name for case in logs.read(split) if case.cause not in slugs] == []


def test_no_thread_and_no_author_is_in_both_splits():
    known, unseen = (list(logs.read(split)) for split in ("known", "unseen"))
    assert len(known) > 500
    assert {case.thread for case in known} & {case.thread for case in unseen} == set()
    assert {case.author for case in known} & {case.author for case in unseen} - {""} == set()


def test_no_program_is_in_both_splits():
    known, unseen = (list(programs.read(split)) for split in ("known", "unseen"))
    assert {case.base for case in known} & {case.base for case in unseen} == set()
    names = Counter(case.name for case in (*known, *unseen))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("source", "thread"),
    [
        ("NVIDIA/apex#318", "nvidia/apex#318"),
        ("https://github.com/nvidia/apex/issues/318#issuecomment-4", "nvidia/apex#318"),
        ("datamol-io/safe#49 (training part)", "datamol-io/safe#49"),
        ("https://discuss.pytorch.org/t/nan/12/", "discuss.pytorch.org/t/nan/12"),
    ],
)
def test_a_thread_is_recognized_in_every_spelling(source, thread):
    assert logs.thread_of(source) == thread


# -- the tools


def test_a_tool_without_a_part_has_a_dash_and_no_zero():
    assert [part for part in PARTS if TOOLS["anomaly"]().can(part)] == ["programs", "steps"]
    assert [part for part in PARTS if TOOLS["lightning-stop"]().can(part)] == ["steps"]
    assert [part for part in PARTS if TOOLS["stayfinite"]().can(part)] == list(PARTS)


def test_a_tool_that_is_not_installed_is_left_out():
    class Absent(Tool):
        needs = ("no_such_package",)

    assert not Absent().installed


ROOT_OF_ZERO = "torch.sqrt((model(x) - model(x)) ** 2).mean()"


@pytest.mark.parametrize(
    ("name", "mark"), [("stayfinite", "right"), ("anomaly", "right"), ("plain", "MISSED"), ("underflow", "found")]
)
def test_a_program_with_a_root_of_zero(name, mark):
    if name == "underflow":
        pytest.importorskip("transformers")
    result = asked(name, program(ROOT_OF_ZERO, ("loss-formula-singularity",)))
    assert result.error == ""
    assert result.mark == mark


@pytest.mark.parametrize("name", ["stayfinite", "anomaly", "plain"])
def test_a_healthy_program_is_left_in_peace(name):
    result = asked(name, program())
    assert (result.mark, result.error) == ("quiet", "")
    assert result.seconds > 0


def test_an_error_of_the_program_is_seen_by_everybody():
    result = asked("plain", program(f"{MEAN}.detach()", ("detached-loss",)))
    assert result.mark == "right"
    assert "does not require grad" in result.answer.words


def test_a_tool_that_fails_gives_no_answer_and_is_named():
    class Broken(Tool):
        def program(self, program: Program, folder: Path) -> Answer:
            raise KeyError("its own fault")

    result = put(Broken(), program())
    assert result.mark == "failed"
    assert "its own fault" in result.error


def test_a_tool_that_never_ends_is_ended():
    class Endless(Tool):
        longest = 0.3

        def program(self, program: Program, folder: Path) -> Answer:
            while True:
                pass

    assert "over" in put(Endless(), program()).error


@pytest.mark.parametrize(("name", "first"), [("stayfinite", ("bad-data-row",)), ("anomaly", ())])
def test_a_step_with_a_nan_row(name, first):
    result = asked(name, step_case(bad=True))
    assert result.error == ""
    assert result.answer.alarmed
    assert result.answer.first == first
    assert asked(name, step_case(bad=False)).mark == "quiet"


@pytest.mark.parametrize("name", ["lightning-anomaly", "lightning-stop"])
@pytest.mark.slow
def test_a_step_under_lightning(name):
    pytest.importorskip("lightning")
    assert asked(name, step_case(bad=True)).mark == "found"
    assert asked(name, step_case(bad=False)).mark == "quiet"


def test_a_log_is_read():
    case = next(case for case in logs.read("known") if case.name.startswith("901-"))
    assert asked("stayfinite", case).mark == "right"
    assert asked("grep", case).mark == "found"


# -- what a place tells


def test_a_function_at_its_edge_tells_a_cause_and_a_product_tells_none():
    assert "loss-formula-singularity" in named_by_backward("Function 'SqrtBackward0' returned nan values in its 0th")
    assert named_by_backward("Function 'MmBackward0' returned nan values in its 0th output.") == ()
    assert named_by_error("Target 5 is out of bounds.") == ("label-out-of-range",)


REPORT = """Detected inf/nan during batch_number=0
Last 2 forward frames:
abs min  abs max  metadata
                  first Linear
1.00e-02 4.50e+00 weight
1.00e-03 4.65e+00 input[0]
2.68e-06 6.10e+04 output
                  second Linear
1.01e-06 6.44e+00 weight
2.68e-06 6.10e+04 input[0]
1.00e-04      inf output
"""


def test_the_last_frame_of_underflow_overflow_tells_a_cause():
    assert "fp16-overflow" in _named("ValueError: DebugUnderflowOverflow: inf/nan detected", REPORT)
    assert _named("ValueError: something else", REPORT) == ()


# -- scores and tables


def result_of(causes: tuple[str, ...], answer: Answer, seconds: float = 1.0, name: str = "a") -> Result:
    case = Case(part="programs", split="unseen", name=name, causes=causes)
    return Result(case=case, tool="t", answer=answer, seconds=seconds)


def test_a_score_counts_what_was_said_and_times_healthy_programs_only():
    results = [
        result_of(("lr-zero",), Answer(alarmed=True, first=("lr-zero",), fixed=True), 90.0),
        result_of(("lr-zero",), Answer(alarmed=True, first=("lr-too-low",), others=("lr-zero",)), 90.0),
        result_of(("lr-zero",), Answer(alarmed=False)),
        result_of((), Answer(alarmed=False), 3.0, "b"),
        result_of((), Answer(alarmed=True), 6.0, "c"),
    ]
    found = score(results, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert (found.faulty, found.detected, found.right, found.among, found.fixed) == (3, 2, 1, 2, 1)
    assert (found.healthy, found.alarms, found.failed, found.cost) == (2, 1, 0, 1.75)


def test_scores_are_kept_and_drawn(tmp_path):
    scores = {"unseen": {"programs": {"t": score([result_of((), Answer(alarmed=False))], {"a": 0.5})}}}
    tables.save(scores, {"unseen programs": "today"}, tmp_path / "kept.json")
    assert tables.load(tmp_path / "kept.json") == (scores, {"unseen programs": "today"})
    assert "| t | - | - | 0 of 1 | 2.00x |" in tables.short(scores, "unseen", ["t"])
    assert tables.short(scores, "known", ["t"]) == "No cases yet."
    assert tables.into_readme(f"a\n{tables.BEGIN}old{tables.END}\nb", "new").count("new") == 1


def test_the_tables_that_are_shown_are_those_that_were_measured():
    scores, measured = tables.load()
    assert tables.TABLE.read_text(encoding="utf-8") == tables.page(scores, measured, USED)
    readme = tables.README.read_text(encoding="utf-8")
    assert tables.into_readme(readme, tables.short(scores, "unseen", USED)) == readme


def test_the_command_prints_a_table(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["failures"])
    threads = torch.get_num_threads()
    main(["--tools", "grep", "--parts", "logs", "--split", "known", "--only", "901-mt5", "--quiet"])
    torch.set_num_threads(threads)
    said = capsys.readouterr().out
    assert "| grep nan | 1 of 1 | 0 of 1 | - |" in said
