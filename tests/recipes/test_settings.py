"""Settings from flags, from a YAML file, or both."""

from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Literal

import pytest
import tyro

from stayfinite.cli.train import RECIPES
from stayfinite.errors import UsageError
from stayfinite.recipes.running.records import settings_of
from stayfinite.recipes.settings import read_settings, require


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A program."""

    train: tuple[str, ...] = ()
    """Files."""
    learning_rate: float = 1e-4
    """Rate."""
    minutes: float | None = None
    """Time."""
    check: bool = True
    """Look."""
    said: str = ""
    """Words."""
    compare: bool | None = None
    """Hold against the start; by default where there is something to hold against it."""
    look: Literal["stop", "off"] = "stop"
    """What to do with a finding."""
    precision: Literal["auto", "no"] = "auto"
    """What is computed in."""
    seed: int = 0
    """For chance."""
    several: tuple[Literal["1", "2"], ...] = ()
    """Some of these."""
    checkpoint_steps: int | None = None
    """Steps between checkpoints."""
    steps: Annotated[int, tyro.conf.arg(aliases=["--max-steps"])] = 3
    """Steps."""


def read(tmp_path, text, *flags):
    path = tmp_path / "train.yaml"
    path.write_text(text, encoding="utf-8")
    return read_settings(Kind, ["--config", str(path), *flags], "program")


def test_flags_alone_and_defaults():
    assert read_settings(Kind, [], "program") == Kind()
    assert read_settings(Kind, ["--learning-rate", "3e-4", "--train", "a", "b"], "program") == Kind(
        learning_rate=3e-4, train=("a", "b")
    )


def test_a_file_says_the_same_as_flags(tmp_path):
    # YAML takes 1e-4 for a text; it must become a number all the same.
    found = read(tmp_path, "learning-rate: 1e-5\ntrain: [a.csv, b.csv]\ncheck: false\nminutes: 2\n")
    assert found == Kind(learning_rate=1e-5, train=("a.csv", "b.csv"), check=False, minutes=2.0)


@pytest.mark.parametrize(("said", "meant"), [("true", True), ("false", False), ("null", None)])
def test_what_is_true_false_or_left_open_can_be_said_in_a_file(tmp_path, said, meant):
    assert read(tmp_path, f"compare: {said}\n") == Kind(compare=meant)


@pytest.mark.parametrize("text", ["-x", "--train", "- a list", "a=b", "", "None"])
def test_a_text_in_a_file_may_be_any_text(tmp_path, text):
    assert read(tmp_path, f"said: {text!r}\nlearning_rate: 1e-3") == Kind(said=text, learning_rate=1e-3)


def test_a_word_that_yaml_takes_for_false_is_the_word_where_a_setting_has_it(tmp_path):
    assert read(tmp_path, "look: off\nprecision: no\n") == Kind(look="off", precision="no")


@pytest.mark.parametrize("text", ["learning_rate: yes\n", "look: on\n", "seed: no\n"])
def test_true_and_false_where_they_mean_nothing_are_refused(tmp_path, text):
    with pytest.raises(UsageError, match=rf"train.yaml: {text.split(':')[0]}: \w+: expected "):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("seed", "many", "a whole number"),
        ("seed", "1.5", "a whole number"),
        ("minutes", "1,5", "a number"),
        ("compare", "perhaps", "True or False"),
        ("look", "on top", "stop or off"),
        ("several", "b", "1 or 2"),
    ],
)
def test_a_value_of_the_wrong_kind_is_met_with_the_right_kind_in_words(tmp_path, setting, value, wanted):
    with pytest.raises(UsageError, match=rf"^--{setting} {value}: expected {wanted}\n  fix: leave --{setting} out"):
        read_settings(Kind, [f"--{setting}", value], "program")
    with pytest.raises(UsageError, match=rf"^--{setting} {value}: expected {wanted}\n"):
        read_settings(Kind, [f"--{setting}={value}"], "program")
    with pytest.raises(UsageError, match=rf"train.yaml: {setting}: {value}: expected {wanted}\n"):
        read(tmp_path, f"{setting}: '{value}'\n")


@pytest.mark.parametrize(("text", "wanted"), [("seed: [1, 2]", "a whole number"), ("said: {a: 1}", "one value")])
def test_a_list_where_one_value_belongs_is_refused(tmp_path, text, wanted):
    with pytest.raises(UsageError, match=f"expected {wanted}\n"):
        read(tmp_path, text)


def test_an_alias_works_in_a_file_too(tmp_path):
    assert read(tmp_path, "max_steps: 7") == Kind(steps=7) == read_settings(Kind, ["--max-steps", "7"], "program")
    assert read_settings(Kind, ["--steps", "7"], "program") == settings_of(Kind, {"steps": 7}) == Kind(steps=7)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_the_common_names(name):
    module = import_module(f"stayfinite.recipes.{name}")
    kind = getattr(module, name.capitalize())
    common = {"max_steps": "7", "checkpoint_steps": "5", "keep_checkpoints": "3", "precision": "bf16",
              "max_grad_norm": "2.0", "batch_size": "4", "accumulation": "2", "warmup_steps": "1",
              "warmup_ratio": "0.5"}  # fmt: skip
    if name == "grpo":
        del common["accumulation"]  # a step has so many answers; they are split into batches
    as_flags = [word for setting, value in common.items() for word in (f"--{setting.replace('_', '-')}", value)]
    asked = read_settings(kind, as_flags, name)
    assert (asked.precision, asked.max_grad_norm, asked.checkpoint_steps, asked.warmup_ratio) == ("bf16", 2.0, 5, 0.5)


def test_flags_win_over_the_file(tmp_path):
    found = read(tmp_path, "learning_rate: 1e-5\ncheck: false\n", "--learning-rate", "1e-3", "--check")
    assert found == Kind(learning_rate=1e-3, check=True)


def test_an_unknown_name_is_met_with_the_nearest_known_one(tmp_path):
    with pytest.raises(UsageError, match="unknown setting 'learning_rte'\n.*did you mean 'learning_rate'"):
        read(tmp_path, "learning_rte: 1\n")


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "a: [1\n"])
def test_what_is_no_mapping_is_refused(tmp_path, text):
    with pytest.raises(UsageError, match="train.yaml"):
        read(tmp_path, text)


def test_a_missing_file_and_a_missing_name_are_refused(tmp_path):
    with pytest.raises(UsageError, match="nowhere.yaml: No such file"):
        read_settings(Kind, ["--config", str(tmp_path / "nowhere.yaml")], "program")
    with pytest.raises(UsageError, match="--config without a file"):
        read_settings(Kind, ["--config"], "program")


def test_an_empty_file_and_null_leave_the_defaults(tmp_path):
    assert read(tmp_path, "") == Kind()
    assert read(tmp_path, "minutes: null\n") == Kind()


@pytest.mark.parametrize("value", [0.0, -1e-4, float("nan"), float("inf")])
def test_a_number_that_cannot_work_is_refused_by_its_flag(value):
    with pytest.raises(
        UsageError,
        match=r"--learning-rate .*: expected a number above 0\n  fix: leave --learning-rate out; 0.0001 is usual",
    ):
        require(Kind(learning_rate=value), above_zero=("learning_rate",))


@pytest.mark.parametrize(("least", "value"), [(0, -1.0), (1, 0.5), (4, 3.9), (1, float("nan")), (1, float("inf"))])
def test_a_number_below_the_least_is_refused_with_the_least(least, value):
    with pytest.raises(
        UsageError, match=rf"--minutes {value}: expected a number of at least {least}\n.*leave --minutes"
    ):
        require(Kind(minutes=value), at_least={least: ("minutes",)})


@pytest.mark.parametrize(
    ("ends", "below", "zero", "one", "above"),
    [
        ("[0, 1)", False, True, False, False),
        ("(0, 1)", False, False, False, False),
        ("[0, 1]", False, True, True, False),
        ("(0, 1]", False, False, True, False),
    ],
)
def test_a_share_has_the_ends_that_it_is_given(ends, below, zero, one, above):
    for value, allowed in ((-0.1, below), (0.0, zero), (0.5, True), (1.0, one), (1.1, above), (float("nan"), False)):
        expectation = nullcontext() if allowed else pytest.raises(UsageError, match=f"--minutes {value}: expected")
        with expectation:
            require(Kind(minutes=value), shares={ends: ("minutes",)})


def test_a_seed_is_one_that_a_generator_can_hold():
    require(Kind(seed=2**63 - 1))
    with pytest.raises(UsageError, match=r"--seed 9223372036854775808: expected a number below 2\*\*63"):
        require(Kind(seed=2**63))


def test_numbers_that_work_and_none_pass():
    require(Kind(), above_zero=("learning_rate", "minutes"), shares={"[0, 1)": ("learning_rate",)})
    require(Kind(minutes=4), at_least={4: ("minutes",)})
    require(Kind(minutes=10**400), at_least={1: ("minutes",)})  # more than a float can hold, and finite all the same
