"""The built-in tasks' own settings in every program, and its settings in words."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module

import pytest

from stayfinite.cli import main
from stayfinite.cli.train import RECIPES
from stayfinite.recipes.settings import read_settings


@pytest.fixture(params=RECIPES)
def program(request):
    module = import_module(f"stayfinite.recipes.{request.param}")
    kind = getattr(module, request.param.capitalize())
    data = "--data" if request.param in ("mt5", "mmdit") else "--train"
    preset = module.BUILT_IN["metric"] if request.param == "sft" else module.BUILT_IN

    def read(*flags):
        return read_settings(kind, flags, request.param, module.settled)

    return kind, data, preset, read


def test_without_data_a_program_has_the_settings_of_its_built_in_task(program):
    _, _, preset, read = program
    assert {name: getattr(read(), name) for name in preset} == preset


def test_with_data_of_ones_own_it_has_the_usual_ones(program):
    kind, data, preset, read = program
    own = read(data, "somewhere")
    assert {name: getattr(own, name) for name in preset} == {name: getattr(kind(), name) for name in preset}


def test_what_is_asked_for_counts_even_where_it_is_the_usual_default(program):
    kind, _, preset, read = program
    defaults = {field.name: field.default for field in fields(kind)}
    numbers = [name for name in preset if type(defaults[name]) in (int, float) and defaults[name] != preset[name]]
    assert numbers
    for name in numbers:
        assert getattr(read(f"--{name.replace('_', '-')}", str(defaults[name])), name) == defaults[name]


@pytest.mark.parametrize("name", RECIPES)
def test_every_setting_is_explained(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for field in fields(getattr(import_module(f"stayfinite.recipes.{name}"), name.capitalize())):
        flag = field.name.replace("_", "-")
        assert f"--{flag}" in shown or f"--no-{flag}" in shown, flag
