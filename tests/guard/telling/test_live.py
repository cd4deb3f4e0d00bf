"""Live curves in a notebook: one place, redrawn now and then, never a reason for a training to change or to end."""

from pathlib import Path

import pytest
import torch

from stayfinite import Finding, Guard, Policy, PrecisionPlan
from stayfinite.core.finding import Findings
from stayfinite.diagnosis.diagnose import diagnose
from stayfinite.guard.telling import live
from stayfinite.inspection.files.inspecting import inspect_files
from stayfinite.precision.plan import Option, Row


class Cell:
    """A place of a notebook that keeps what it is shown."""

    def __init__(self) -> None:
        self.made = 0
        self.shown: list[str] = []

    def __call__(self) -> live.Draw:
        self.made += 1
        return self.shown.append


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    cell = Cell()
    monkeypatch.setattr(live.Switch, "place", cell)
    monkeypatch.setattr(live, "EVERY", 0.0)
    monkeypatch.setattr(live, "SHARE", 0)
    return cell


def trained(steps: int = 12, bad: int = 5) -> tuple[list[float], Guard]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    guard = Guard(model, torch.optim.AdamW(model.parameters()), policy=Policy(max_incidents=0))
    for step in range(1, steps + 1):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        guard.step(loss * float("nan") if step == bad else loss)
    guard.close()
    return [value for each in model.parameters() for value in each.detach().flatten().tolist()], guard


def test_one_cell_is_redrawn_and_shows_what_was_refused(cell: Cell) -> None:
    trained()
    assert cell.made == 1
    assert len(cell.shown) == 13  # each step, and the end
    assert "ended, 12 steps, 1 refused" in cell.shown[-1]
    assert "#d33" in cell.shown[-1]
    assert "#d33" not in cell.shown[2]


def test_pictures_keep_to_their_share_of_the_time(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 60.0)
    trained()
    assert len(cell.shown) == 2  # the first step, and the end


def test_a_training_is_the_same_bit_for_bit_with_and_without(cell: Cell) -> None:
    drawn, _ = trained()
    live.Switch.place = None
    assert trained()[0] == drawn


def test_switched_off_nothing_more_is_drawn(cell: Cell) -> None:
    live.Switch.place = None
    trained()
    assert cell.made == 0


def test_a_notebook_that_has_gone_away_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> live.Draw:
        raise OSError("no kernel")

    monkeypatch.setattr(live.Switch, "place", gone)
    trained()


def test_what_a_notebook_shows_is_escaped(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "<script>alert(1)</script>\ud800"
    finding = Finding(
        code="SF101", cause=evil, severity="error", confidence=1.0, where=evil, title=evil, evidence=(evil,), fix=evil
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "<b>train.yaml").write_text("lr: 1e-4\nfp16: true\nbf16: true\n")
    (tmp_path / "<b>train.log").write_text("step 1 loss 1.0 <script>\nstep 2 loss nan\n")
    _, guard = trained()
    shown = [Findings([finding]), inspect_files(["<b>train.yaml"]), diagnose("<b>train.log"), guard]
    for each in shown:
        html = each._repr_html_()
        html.encode()
        assert "<script" not in html
        assert "<b>train" not in html
    assert "&lt;script&gt;" in finding._repr_html_()
    assert "<svg" in guard._repr_html_()


def test_a_plan_shows_what_breaks_and_what_was_tried_escaped() -> None:
    row = Row(name="<script>", kind="Linear", largest={}, errors={}, breaks={"fp16": "overflows <b>"})
    tried = Option(base="bf16", formats={"<script>": "fp32"}, loss=0.001, cosine=0.99991, gradient=0.1, fits=True)
    plan = PrecisionPlan(
        base="bf16", formats={"<script>": "fp32"}, units={"<script>": "Linear"}, rows=(row,), options=(tried,)
    )
    html = plan._repr_html_()
    assert "<script" not in html
    assert "<b>&lt;" not in html
    for words in ("bf16 autocast", "overflows &lt;b&gt;", "0.99991", "fits"):
        assert words in html


def test_a_guard_counts_the_steps_that_it_has_forgotten_too() -> None:
    _, guard = trained(steps=1_100, bad=5)
    assert len(guard.decisions) < 1_100
    assert repr(guard).endswith("1 refused>")
    assert "1 refused" in guard._repr_html_()


def test_a_guess_does_not_look_like_a_proof(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("\n".join(f"step {n} loss {'nan' if n > 50 else 2.0}" for n in range(90)))
    guess = diagnose(tmp_path / "train.log").cause
    assert guess is not None
    assert f"({guess.confidence:.0%})" in guess._repr_html_()


def test_no_findings_read_well() -> None:
    assert repr(Findings()) == "No findings."
    assert "No findings." in Findings()._repr_html_()
    assert Findings() == []


NOTEBOOK = """
import torch, stayfinite
model = torch.nn.Linear(4, 1)
guard = stayfinite.Guard(model, torch.optim.AdamW(model.parameters()))
for step in range(5):
    guard.step(model(torch.randn(8, 4)).pow(2).mean())
guard.close()
"""


@pytest.mark.slow
def test_a_real_kernel_draws_into_one_output_and_is_silent_when_off() -> None:
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cells = ["%load_ext stayfinite", NOTEBOOK, "%stayfinite off\n" + NOTEBOOK, "%unload_ext stayfinite"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    client.NotebookClient(book, timeout=120).execute()
    drawn = [[out for out in cell.outputs if "<svg" in out.get("data", {}).get("text/html", "")] for cell in book.cells]
    assert [len(each) for each in drawn] == [0, 1, 0, 0]
    assert "ended, 5 steps" in drawn[1][0]["data"]["text/html"]
