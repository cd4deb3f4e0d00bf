"""A diagnosis on the terminal."""

import io

import pytest
from rich.console import Console

from stayfinite import diagnose
from stayfinite.report.diagnosis import show_diagnosis

LOST = "".join(f"{{'loss': {loss}, 'learning_rate': 5e-05, 'epoch': {at}}}\n" for at, loss in
               ((0.1, 2.31), (0.2, 2.12), (0.3, "nan")))  # fmt: skip


@pytest.fixture
def undecided(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(LOST)
    found = diagnose(log).to_json()
    return found | {"sources": [*found["sources"], {"path": "train.py", "read_as": "code", "said": "a script"}]}


def shown(diagnosis, **how):
    console = Console(file=io.StringIO(), width=120)
    show_diagnosis(diagnosis, console, **how)
    return console.file.getvalue()


def test_an_open_question_names_the_doctor_as_the_next_step(undecided):
    assert "Or prove it: stayfinite doctor train.py" in shown(undecided)


def test_the_doctor_does_not_advise_itself(undecided):
    said = shown(undecided, by_doctor=True)
    assert "Not decided. Try:" in said
    assert "stayfinite doctor" not in said
