"""Scripts as people write them: values are followed to where they are written, and what is unknown stays so."""

from pathlib import Path

import pytest

from readers.configs.scripts.look_alikes import LOOK_ALIKES
from readers.configs.scripts.styles import STYLES, Style
from stayfinite.inspection.files.inspecting import inspect_files
from stayfinite.readers.configs import read_config

ALL = STYLES | LOOK_ALIKES


def laid_out(style: Style, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    for name, text in style.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return next(iter(style.files))


@pytest.mark.parametrize("name", ALL)
def test_a_value_is_followed_to_where_it_is_used(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_config(laid_out(ALL[name], tmp_path, monkeypatch))
    found = {setting.name: setting.value for setting in settings}
    assert {each: found.get(each, "(missing)") for each in ALL[name].says} == ALL[name].says


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].places])
def test_its_place_is_the_line_that_writes_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_config(laid_out(ALL[name], tmp_path, monkeypatch))
    found = {setting.name: setting.where for setting in settings}
    assert {each: found.get(each) for each in ALL[name].places} == ALL[name].places


@pytest.mark.parametrize("name", STYLES)
def test_a_planted_fault_is_found_however_it_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = inspect_files([laid_out(STYLES[name], tmp_path, monkeypatch)])
    assert {finding.cause for finding in found.findings} == STYLES[name].causes


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_script_that_only_looks_faulty_is_left_in_peace(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = inspect_files([laid_out(LOOK_ALIKES[name], tmp_path, monkeypatch)])
    assert [finding.cause for finding in found.findings] == []


def test_defaults_are_told_in_the_order_of_the_signature(tmp_path: Path) -> None:
    names = [f"{each}_rate" for each in ("peak", "base", "low", "warm", "decay", "dropout", "noise", "mask")]
    signature = ", ".join(f"{name}=0.{place}" for place, name in enumerate(names, 1))
    (tmp_path / "train.py").write_text(f"def train({signature}):\n    pass\n\ntrain()\n")
    settings = read_config(tmp_path / "train.py")
    assert [each.name for each in settings][: len(names)] == [f"train.{name}" for name in names]
